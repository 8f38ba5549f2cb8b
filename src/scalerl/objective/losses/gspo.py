"""GSPO: one length-normalised ratio per completion (arXiv 2507.18071, eq. 5-7).

    s_i = exp(mean_t log rho_it)           J_i = min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i)

The mean runs over the unmasked tokens; a completion is never split across micro-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.objective.losses import Loss
from scalerl.objective.ratios import clipped_objective, is_clipped, own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Gspo(Loss):
    """Clipping decides over whole completions instead of tokens."""

    clip_low: float = Field(default=3e-3, ge=0.0, le=1.0)
    """Offset below 1. The ratio is length-normalised, so sensible ranges shrink with length."""
    clip_high: float = Field(default=5e-3, ge=0.0)
    """Offset above 1; 3e-3 and 5e-3 were the best pair of arXiv 2510.13786."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The clipped objective of the completion's ratio, the same for each of its tokens, (N, T)."""
        (advantages,) = own_tokens(mask, advantages)
        return clipped_objective(_mean_log_ratio(log_probs, behaviour, mask), advantages, low=self.clip_low, high=self.clip_high)

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """All tokens of the completions whose ratio is beyond the bound on the side that their advantage pulls to."""
        (advantages,) = own_tokens(mask, advantages)
        return is_clipped(_mean_log_ratio(log_probs, behaviour, mask), advantages, low=self.clip_low, high=self.clip_high)


def _mean_log_ratio(log_probs: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """log s_i = mean_t log rho_it over own tokens, (N, 1); 0 for a completion without any.

    The mean comes before the exponential: log-ratios of +100 and -100 are a ratio of 1, not inf times 0.
    """
    log_probs, behaviour = own_tokens(mask, log_probs, behaviour)
    num_tokens = mask.sum(-1, keepdim=True).clamp(min=1)
    return (log_probs - behaviour).sum(-1, keepdim=True) / num_tokens
