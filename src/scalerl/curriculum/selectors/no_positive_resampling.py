"""No-Positive-Resampling: what is solved is not sampled again (arXiv 2510.13786, section 2).

A prompt whose last group passed at a rate of `threshold` or more leaves all later epochs. The rate is the quotient of
integer counts over the completions that were graded: 9 / 10 and the setting .9 are then the same double, as the sum of
ten tenths is not.
"""

from pydantic import Field

from scalerl.curriculum.selectors import Selector


class NoPositiveResampling(Selector):
    """Uniform order over the prompts that are not solved yet."""

    threshold: float = Field(default=0.9, gt=0.0, le=1.0)
    """Pass rate from which on a prompt is left out; with groups of 8 only 8 of 8 reaches .9."""

    def leaves_out(self, num_passed: int, num_graded: int, *, epochs_ago: int = 1) -> bool:  # noqa: ARG002
        """Whether the prompt's last group reached `threshold`; one of which nothing was graded did not."""
        return num_graded > 0 and num_passed / num_graded >= self.threshold
