"""Forced interruption at work: a length control's phrase as token ids, and where it falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import UsageError
from scalerl.models._policy import Policy
from scalerl.objective.length_controls import LengthControl

_LARGEST_DRAW = np.array([np.nextafter(1.0, 0.0)])


@dataclass(frozen=True, slots=True, eq=False)
class Insertion:
    """What is inserted, and how much may follow it."""

    control: LengthControl
    token_ids: NDArray[np.int64]
    """(m,) the phrase, tokenised once; m > 0."""
    thinking_end: NDArray[np.int64]
    """(n,) the tokens whose completion needs no interruption any more, tokenised once; none where n = 0."""
    answer_tokens: int
    """Tokens that may follow the phrase, if the completion's budget has room for them."""

    @classmethod
    def of(cls, control: LengthControl, policy: Policy, *, completion_tokens: int) -> Self | None:
        """The interruption that `control` asks for; None where it asks for none.

        Raises:
            UsageError: the latest phrase would leave nothing of the budget.
            DataError: the tokenizer cannot encode the phrase, or what ends thinking by itself.
        """
        latest = control.interrupts_after(_LARGEST_DRAW)
        if latest is None:
            return None
        where = "length.control.phrase"
        token_ids = np.array(policy.encode(control.insertion, where=where), dtype=np.int64)
        if latest[0] + len(token_ids) >= completion_tokens:
            raise UsageError(
                f"{latest[0]} thinking tokens and a phrase of {len(token_ids)} leave nothing of {completion_tokens} for an answer",
                where=where,
                remedy="raise length.completion_tokens or interrupt earlier",
            )
        end = policy.encode(control.thinking_end, where="length.control.ends_thinking") if control.thinking_end else ()
        return cls(control, token_ids, np.array(end, dtype=np.int64), answer_tokens=control.least_completion_tokens - int(latest[0]))

    def after(self, draws: NDArray[np.float64]) -> NDArray[np.int64]:
        """(N,) tokens after which each completion is interrupted, for (N,) uniform draws in [0, 1)."""
        after = self.control.interrupts_after(draws)
        assert after is not None, "a control that interrupts once interrupts always"
        return after
