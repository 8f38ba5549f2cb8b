"""What travels between the decode loop and the process in which vLLM runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A request of vLLM: a completion, the rest of one, or a token to be scored."""

    name: str
    token_ids: Sequence[int]
    """What the new tokens follow: the prompt, and what the completion has already."""
    max_tokens: int
    seed: int
    salt: str
    """Cached keys are shared among pieces of one salt only."""
    scored_id: int | None = None
    """The token whose log-probability is asked for, whatever is sampled."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a step made of a piece."""

    name: str
    id: int
    log_prob: float
    """In nats, at the sampling temperature."""
    num_computed: int
    """Positions that the step computed: one where the cache held all the others."""
    is_last: bool
    """Whether the piece ends with it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the process cannot go on, in words."""

    reason: str
