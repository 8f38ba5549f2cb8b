"""Left-to-right arithmetic modulo 10 with + - *, with a ceiling that can be proved.

A prompt like `7+8*3-4:`, thinking as the running values, one character each, then `=v.` (for example `551=1.`).
A share of all prompts, marked by a keyed hash that the prompt does not show, has a gold answer outside the
vocabulary, as wrong labels have in real data: no policy can score there, so the ceiling is one minus that share.
"""

from typing import Self

from pydantic import Field, model_validator

from scalerl.tasks import Task


class Chain(Task):
    """The embedded task of the laptop scale."""

    operations: tuple[int, int] = (2, 7)
    """Least and largest number of operations in a prompt, both included."""
    num_prompts: int = Field(default=4096, gt=0)
    """Training prompts: a finite set, seen again every epoch."""
    unsolvable_share: float = Field(default=0.15, ge=0.0, lt=1.0)
    """Share of the prompts, training and held-out alike, that nothing can score on."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.operations
        if not 0 < low <= high:
            raise ValueError(f"operations must hold 0 < least <= largest, not {low} and {high}")
        return self
