"""No-Positive-Resampling: what is solved is not sampled again (arXiv 2510.13786, section 2).

A prompt whose last group passed at a rate of `threshold` or more leaves all later epochs. The rate is a quotient of
integer counts over the completions that were graded, so 9 of 10 reaches .9 however it is computed.
"""

from pydantic import Field

from scalerl.curriculum.selectors import Selector


class NoPositiveResampling(Selector):
    """Uniform order over the prompts that are not solved yet."""

    threshold: float = Field(default=0.9, gt=0.0, le=1.0)
    """Pass rate from which on a prompt is left out; with groups of 8 only 8 of 8 reaches .9."""
