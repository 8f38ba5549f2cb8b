"""Losses: what one token contributes, before any sum. The family's base.

A loss is its objective J, which is to be maximised; the trainer minimises -sum(weight * J). It needs tensor methods
only (`x.exp()`, `x.minimum(y)`, `.where`), so settings stay importable without torch. A page for each: docs/losses/.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from scalerl.core.components import Component
from scalerl.objective.ratios import clipped_objective, is_clipped, log_ratios, own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Loss(Component, family="losses"):
    """A per-token (or per-sequence) policy objective; aggregation sums it with a global denominator."""

    @abstractmethod
    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """J of every token, (N, T) in fp32 or wider, exactly 0 where `mask` is False; its gradient there is 0 and finite as well.

        Args:
            log_probs: (N, T) log pi(y_it) in nats of the policy in training, which carry the gradient.
            behaviour: (N, T) log pi_gen(y_it) of the version that sampled each token; a constant.
            advantages: scaled A_i, (N, 1), or A_it of each token, (N, T), as a critic gives; a constant.
            mask: (N, T) True for the policy's own tokens. Elsewhere anything may stand in the others, NaN included.
        """

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """Which own tokens a bound of this loss holds back, (N, T) booleans, False where `mask` is; arguments as in `objective`.

        It tells how far the policy has moved from the one that sampled; nothing is trained by it. Without a bound, none.
        """
        return mask & False


class ClippedRatio(Loss):
    """A loss that is PPO's clipped objective of each token's ratio; a component says within which bounds."""

    @abstractmethod
    def bounds(self) -> tuple[float, float, float | None]:
        """Offsets below and above 1 at which the ratio is clipped, and the dual clip, an ABSOLUTE ratio, if there is one."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The clipped objective of each token's ratio, with a dual clip floored at dual_clip A_it where A_it < 0, (N, T)."""
        (advantages,) = own_tokens(mask, advantages)
        low, high, dual = self.bounds()
        return clipped_objective(log_ratios(log_probs, behaviour, mask), advantages, low=low, high=high, dual=dual)

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """Tokens whose ratio is beyond the bound on the side that their advantage pulls to, or beyond the dual clip where A < 0."""
        (advantages,) = own_tokens(mask, advantages)
        low, high, dual = self.bounds()
        return is_clipped(log_ratios(log_probs, behaviour, mask), advantages, low=low, high=high, dual=dual)
