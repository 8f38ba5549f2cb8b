"""Sampling by the inverse of the cumulative distribution: one uniform number decides a token.

So a token is a function of its logits and of its own draw; which rows are sampled with it changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sample(logits: Tensor, draws: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Tokens and their log-probabilities under softmax(logits / temperature).

    Args:
        logits: (N, V) fp32.
        draws: (N,) fp64 uniform numbers in [0, 1).

    Returns:
        (N,) ids, and (N,) fp32 log-probabilities in nats, NaN where the logits are not finite.
    """
    log_probs = torch.log_softmax(logits / temperature, dim=-1)
    cumulative = log_probs.exp().cumsum(dim=-1, dtype=torch.float64)
    # Rounding lets the sum differ from 1: the draw is a share of what there is, so the last token is no catch-all.
    ids = torch.searchsorted(cumulative, (draws * cumulative[:, -1])[:, None], right=True)
    ids.clamp_(max=logits.shape[-1] - 1)  # nothing but NaN comes out beyond the last token
    return ids[:, 0], log_probs.gather(-1, ids)[:, 0]
