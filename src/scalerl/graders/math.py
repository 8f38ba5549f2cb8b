"""The answer equals the gold answer as mathematics (math-verify, in worker processes that can be killed).

It cannot work yet: a run that selects it is refused before anything is spent.
"""

from __future__ import annotations

from pydantic import Field

from scalerl.core.errors import UsageError
from scalerl.graders import Grader
from scalerl.records.rollout import Completion, Prompt, Score


class Math(Grader):
    """Numbers, sets, intervals and expressions; the last boxed answer after the thinking counts."""

    timeout_s: float = Field(default=5.0, gt=0.0)
    """Seconds for one completion; the clock starts when the work starts."""
    workers: int = Field(default=2, gt=0)
    """Worker processes."""

    def grade(self, prompt: Prompt, completion: Completion) -> Score:  # noqa: ARG002
        """Nothing yet.

        Raises:
            UsageError: always.
        """
        raise self.why_unusable()

    def why_unusable(self) -> UsageError:
        """It does not run yet."""
        return UsageError("it does not work yet", where=f"grader '{self.name()}'", remedy="choose 'exact' for answers of one spelling")
