"""Overlong penalty: correct completions pay for their last tokens (DAPO, arXiv 2503.14476; arXiv 2510.13786, appendix).

penalty = clip((limit_tokens - length) / margin_tokens - 1, -1, 0), added to the score of correct completions only
"""

from typing import Self

from pydantic import Field, model_validator

from scalerl.objective.length_controls import LengthControl
from scalerl.records.rollout import Score


class Penalty(LengthControl):
    """Free up to `limit_tokens - margin_tokens`, then linear down to -1 at `limit_tokens`."""

    limit_tokens: int = Field(gt=0, examples=[14336])
    """Length at which the penalty reaches -1."""
    margin_tokens: int = Field(gt=0, examples=[2048])
    """Length of the slope before the limit."""

    def value(self, score: Score, num_tokens: int) -> float | None:
        """The score's value, for a correct completion with the penalty added; None where grading failed."""
        if score.value is None or not score.passed:
            return score.value
        return score.value + min(max((self.limit_tokens - num_tokens) / self.margin_tokens - 1.0, -1.0), 0.0)

    @model_validator(mode="after")
    def _free_at_first(self) -> Self:
        if self.margin_tokens > self.limit_tokens:
            raise ValueError(
                f"margin_tokens {self.margin_tokens} is more than limit_tokens {self.limit_tokens}: an empty completion would pay"
            )
        return self
