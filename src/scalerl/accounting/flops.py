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

    def times(self, factor: float) -> ModelFlops:
        """Every piece so many times."""
        return ModelFlops(factor * self.body_per_token, factor * self.attention_per_pair, factor * self.head_per_token)

    def __add__(self, other: ModelFlops) -> ModelFlops:
        """Both, piece by piece."""
        return ModelFlops(
            self.body_per_token + other.body_per_token,
            self.attention_per_pair + other.attention_per_pair,
            self.head_per_token + other.head_per_token,
        )


BACKWARD_PER_FORWARD = 2
"""A matmul has two gradients, of its input and of its weight."""


@dataclass(frozen=True, slots=True)
class TrainingFlops:
    """What a forward and a backward pass of a model in training cost."""

    useful: ModelFlops
    """Both passes, each matmul once for what it gives."""
    recomputed: ModelFlops = ModelFlops(0.0, 0.0, 0.0)
    """What is computed a second time to save memory."""

    @staticmethod
    def of(forward: ModelFlops, *, recomputes: bool = False) -> TrainingFlops:
        """Of a model whose weights are all trained.

        Activation checkpointing runs the body's forward pass twice, but for each layer's last matmul, which is counted all the same.
        """
        body = ModelFlops(forward.body_per_token, forward.attention_per_pair, 0.0)
        return TrainingFlops(forward.times(1 + BACKWARD_PER_FORWARD), body.times(float(recomputes)))


def causal_pairs(lengths: NDArray[np.int64], *, start: NDArray[np.int64] | int = 0) -> NDArray[np.int64]:
    """(token, key) pairs of the positions `start` .. `length - 1` of each sequence under causal attention."""
    return (lengths * (lengths + 1) - start * (start + 1)) // 2
