"""The probe: a fixed set of sequences that trainer and generator score at each weight push.

Both score the same tokens under the same version, so that any difference is a fault of one of them: precision, cache,
positions, or weights that did not arrive. That difference, and only that, is called mismatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

TokenIds = tuple[int, ...]
Probe = Sequence[tuple[TokenIds, TokenIds]]
"""(context, continuation) of each sequence; continuations are scored."""


class Scorer(Protocol):
    """Either side of a push: an engine or a learner."""

    def score(self, probe: Probe) -> NDArray[np.float32]:
        """Log-probability in nats of every token of the continuations, one after the other."""
        ...


def probe_of(texts: Iterable[str], *, encode: Callable[[str], Sequence[int]], max_tokens: int) -> Probe:
    """Each text, cut to `max_tokens`, as (context, continuation) of equal length; texts of less than two tokens are left out."""
    sequences = [tuple(encode(text)[:max_tokens]) for text in texts]
    return [(ids[: len(ids) // 2], ids[len(ids) // 2 :]) for ids in sequences if len(ids) > 1]


def scored(side: Scorer, probe: Probe) -> NDArray[np.float32]:
    """How one side scores the probe: (its tokens,) log-probabilities in nats, none for a probe without sequences."""
    return side.score(probe) if probe else np.zeros(0, np.float32)
