"""Length control: what keeps completions from growing without bound. The family's base."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scalerl.core.components import Component
from scalerl.records.rollout import Score


class LengthControl(Component, family="length_controls"):
    """A rule that bounds thinking, by cutting into it or by paying for brevity."""

    @property
    def least_completion_tokens(self) -> int:
        """Smallest `length.completion_tokens` that leaves room for what the rule does."""
        return 0

    @property
    def insertion(self) -> str:
        """What is inserted into a completion that is interrupted; empty where none ever is."""
        return ""

    @property
    def thinking_end(self) -> str:
        """What ends thinking by itself: a completion that holds it is not interrupted; empty where none is spared."""
        return ""

    def interrupts_after(self, draws: NDArray[np.float64]) -> NDArray[np.int64] | None:
        """Tokens after which each completion is interrupted if it has not stopped by then; None where none ever is.

        Args:
            draws: one uniform number in [0, 1) per completion.
        """
        return None

    def value(self, score: Score, num_tokens: int) -> float | None:
        """The score's value with what length costs; None where there is none."""
        return score.value
