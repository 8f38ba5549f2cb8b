"""CISPO: truncated importance weights on plain policy gradient (MiniMax-M1, arXiv 2506.13585; arXiv 2510.13786, eq. 4).

J_it = sg(min(rho_it, cap)) A_i log pi(y_it)           sg: no gradient flows through the weight
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.objective.losses import Loss
from scalerl.objective.ratios import exp_ratio, log_ratios, own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Cispo(Loss):
    """Every token keeps a gradient, whatever its ratio; none weighs more than `cap`."""

    cap: float = Field(default=5.0, gt=0.0)
    """Largest importance weight: an ABSOLUTE ratio. Libraries that store an offset (1 + eps) write 4.0 for 5.0 here."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The truncated weight times A_i log pi(y_it), (N, T); no sign-dependent clipping."""
        weights = exp_ratio(log_ratios(log_probs, behaviour, mask)).clamp(max=self.cap).detach()
        log_probs, advantages = own_tokens(mask, log_probs, advantages)
        return weights * advantages * log_probs

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """Tokens whose weight is `cap`, whatever their advantage."""
        return mask & (exp_ratio(log_ratios(log_probs, behaviour, mask)) > self.cap)
