"""PPO: the clipped ratio (arXiv 1707.06347, eq. 7), if wanted with a second bound for A < 0 (dual clip, arXiv 1912.09729, eq. 5).

    J_it = min(rho_it A_it, clip(rho_it, 1 - clip, 1 + clip) A_it)           with a dual clip, where A < 0: max(J_it, dual_clip A_it)

The token objective is GRPO's; PPO's own is the critic, an advantage that differs from token to token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.objective.losses.grpo import Grpo
from scalerl.objective.ratios import exp_ratio, log_ratios, own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Ppo(Grpo):
    """Symmetric clipping of the token's ratio, and a floor under what one bad token can cost."""

    dual_clip: float | None = Field(default=None, gt=1.0)
    """Largest ratio at which a token with A < 0 is still trained on: an ABSOLUTE ratio, often 3; none: there is no such bound."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The clipped objective of each token's ratio, floored at dual_clip A_it where A_it < 0, (N, T)."""
        values = super().objective(log_probs, behaviour, advantages, mask)
        if self.dual_clip is None:
            return values
        (advantages,) = own_tokens(mask, advantages)
        return values.maximum(self.dual_clip * advantages).where(advantages < 0.0, values)

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """Tokens whose ratio is beyond the bound on the side that their advantage pulls to, or beyond the dual clip where A < 0."""
        marked = super().clipped(log_probs, behaviour, advantages, mask)
        if self.dual_clip is None:
            return marked
        (advantages,) = own_tokens(mask, advantages)
        return marked | (advantages < 0.0) & (exp_ratio(log_ratios(log_probs, behaviour, mask)) > self.dual_clip)
