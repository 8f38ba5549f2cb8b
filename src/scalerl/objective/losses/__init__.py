"""Losses: what one token contributes, before any sum. The family's base.

A loss is its objective J, which is to be maximised; the trainer minimises -sum(weight * J). It needs tensor methods
only (`x.exp()`, `x.minimum(y)`, `.where`), so settings stay importable without torch. A page for each: docs/losses/.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from scalerl.core.components import Component

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
