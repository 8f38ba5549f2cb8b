"""Difficulty window: prompts that are neither hopeless nor solved, by the pass rate of their last group.

Groups of equal rewards teach nothing; filtering them afterwards has paid for their generation already. A prompt outside
of the window rests for some epochs and is then tried again, as the policy may have reached or lost it.
"""

from typing import Self

from pydantic import Field, model_validator

from scalerl.curriculum.selectors import Selector


class Difficulty(Selector):
    """Prompts whose last pass rate lies in the window, ends included; those that were never graded too."""

    low: float = Field(default=0.05, ge=0.0, le=1.0)
    """Least pass rate."""
    high: float = Field(default=0.95, ge=0.0, le=1.0)
    """Largest pass rate."""
    rest_epochs: int = Field(default=3, gt=0)
    """Epochs that a prompt outside of the window is left out for."""

    @model_validator(mode="after")
    def _is_window(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"the window {self.low:g} .. {self.high:g} is empty: give low below high")
        return self

    @property
    def longest_rest_epochs(self) -> int:
        """As set."""
        return self.rest_epochs

    def leaves_out(self, num_passed: int, num_graded: int, *, epochs_ago: int = 1) -> bool:
        """Whether the prompt's last group lay outside, fewer than `rest_epochs` + 1 epochs ago."""
        return num_graded > 0 and epochs_ago <= self.rest_epochs and not self.low <= num_passed / num_graded <= self.high
