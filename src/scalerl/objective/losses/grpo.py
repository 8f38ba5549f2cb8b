"""GRPO: PPO's clipped ratio without a critic (DeepSeekMath, arXiv 2402.03300, eq. 3).

    J_it = min(rho_it A_i, clip(rho_it, 1 - clip, 1 + clip) A_i)

The advantage's group scale and the sample aggregation that GRPO is known by are ingredients of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.objective.losses import Loss
from scalerl.objective.ratios import clipped_objective, is_clipped, log_ratios, own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Grpo(Loss):
    """Symmetric clipping of the token's ratio."""

    clip: float = Field(default=0.2, ge=0.0, le=1.0)
    """Offset from 1 at which the ratio is clipped, on both sides."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The clipped objective of each token's ratio, (N, T)."""
        (advantages,) = own_tokens(mask, advantages)
        return clipped_objective(log_ratios(log_probs, behaviour, mask), advantages, low=self.clip, high=self.clip)

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """Tokens whose ratio is beyond the bound on the side that their advantage pulls to."""
        (advantages,) = own_tokens(mask, advantages)
        return is_clipped(log_ratios(log_probs, behaviour, mask), advantages, low=self.clip, high=self.clip)
