"""GSPO: one length-normalised ratio per completion (arXiv 2507.18071, eq. 5-7, in the form of eq. 13-15, GSPO-token).

    s_i = exp(mean_t log rho_it)           s_it = sg(s_i) pi(y_it) / sg(pi(y_it))
    J_it = min(s_it A_it, clip(s_it, 1 - clip_low, 1 + clip_high) A_it)

In value s_it is s_i. With one advantage per completion the gradient is that of J_i = min(s_i A_i, clip(s_i) A_i) as well:
tokens of a completion have one weight. With an advantage per token, clipping still decides by the completion's ratio, but
each token is pulled by its own advantage; differentiating s_i itself would give all tokens their mean advantage.

The mean runs over the unmasked tokens; a completion is never split across micro-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.objective.losses import Loss
from scalerl.objective.ratios import clipped_objective, is_clipped, log_ratios, own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Gspo(Loss):
    """Clipping decides over whole completions instead of tokens."""

    clip_low: float = Field(default=3e-3, ge=0.0, le=1.0)
    """Offset below 1. The ratio is length-normalised, so sensible ranges shrink with length."""
    clip_high: float = Field(default=5e-3, ge=0.0)
    """Offset above 1; 3e-3 and 5e-3 were the best pair of arXiv 2510.13786."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The clipped objective of the completion's ratio, with each token's own gradient and advantage, (N, T)."""
        of_completion = log_ratios(log_probs, behaviour, mask, level="geometric").detach()
        log_probs, advantages = own_tokens(mask, log_probs, advantages)
        of_tokens = of_completion + (log_probs - log_probs.detach())
        return clipped_objective(of_tokens, advantages, low=self.clip_low, high=self.clip_high)

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """Tokens of the completions whose ratio is beyond the bound on the side that the token's advantage pulls to."""
        of_completion = log_ratios(log_probs, behaviour, mask, level="geometric")
        (advantages,) = own_tokens(mask, advantages)
        return is_clipped(of_completion, advantages, low=self.clip_low, high=self.clip_high)
