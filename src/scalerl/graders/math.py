"""The answer equals the gold answer as mathematics (math-verify, in worker processes that can be killed)."""

from pydantic import Field

from scalerl.graders import Grader


class Math(Grader):
    """Numbers, sets, intervals and expressions; the last boxed answer after the thinking counts."""

    timeout_s: float = Field(default=5.0, gt=0.0)
    """Seconds for one completion; the clock starts when the work starts."""
    workers: int = Field(default=2, gt=0)
    """Worker processes."""
