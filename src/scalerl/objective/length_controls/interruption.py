"""Forced interruption: a phrase ends the thinking, then the answer may follow (arXiv 2510.13786, section 2).

The inserted tokens are not the policy's: they leave loss and token counts, and later tokens are conditioned on them.
"""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from scalerl.objective.length_controls import LengthControl


class Interruption(LengthControl):
    """At a position drawn uniformly from `after_tokens`, append `phrase` to a completion that still thinks."""

    after_tokens: tuple[int, int] = Field(examples=[(10240, 12288)])
    """Least and largest number of thinking tokens before the phrase, both included."""
    phrase: str = Field(min_length=1, examples=["Time is up. </think>"])
    """What is inserted; it is tokenised once and its ids are kept in the run."""
    answer_tokens: int = Field(gt=0, examples=[2048])
    """Tokens that may follow the phrase."""
    ends_thinking: str = Field(default="", examples=["</think>"])
    """What ends thinking by itself: a completion that holds it is not interrupted. Empty: every completion that has not stopped
    by then is."""

    @property
    def least_completion_tokens(self) -> int:
        """The latest interruption and the answer after it."""
        return self.after_tokens[1] + self.answer_tokens

    @property
    def insertion(self) -> str:
        """The phrase."""
        return self.phrase

    @property
    def thinking_end(self) -> str:
        """What ends thinking by itself."""
        return self.ends_thinking

    def interrupts_after(self, draws: NDArray[np.float64]) -> NDArray[np.int64]:
        """least + floor(draw x (largest - least + 1)) for each draw, so that both ends are as likely as any other."""
        low, high = self.after_tokens
        return low + np.floor(draws * (high - low + 1)).astype(np.int64)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.after_tokens
        if not 0 < low <= high:
            raise ValueError(f"after_tokens must hold 0 < least <= largest, not {low} and {high}")
        return self
