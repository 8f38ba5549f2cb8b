"""FLOPs of a decoder: matmuls of unpadded tokens, attention at true context, head included, look-up of embeddings not.

    forward = tokens * body + (token, key) pairs * attention + logits * head            backward = 2 * forward

A multiply-add counts as two. Padding and recomputation are booked apart from these. Oracle: torch.utils.flop_counter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ModelFlops:
    """What one forward pass of a model costs, piece by piece."""

    body_per_token: float
    """Every matmul of the layers but attention's own, for one token."""
    attention_per_pair: float
    """Scores and weighted values, for one token that attends to one key, over all layers and heads."""
    head_per_token: float
    """The logits of one position."""

    def forward(self, *, num_tokens: int, num_pairs: int, num_logits: int) -> float:
        """FLOPs of a forward pass.

        Args:
            num_tokens: positions computed.
            num_pairs: sum over those positions of the keys that each attends to, itself included.
            num_logits: positions whose logits are made.
        """
        return num_tokens * self.body_per_token + num_pairs * self.attention_per_pair + num_logits * self.head_per_token


def causal_pairs(lengths: NDArray[np.int64], *, start: NDArray[np.int64] | int = 0) -> NDArray[np.int64]:
    """(token, key) pairs of the positions `start` .. `length - 1` of each sequence under causal attention."""
    return (lengths * (lengths + 1) - start * (start + 1)) // 2
