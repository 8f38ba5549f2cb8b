"""REINFORCE: plain policy gradient without a ratio (Williams 1992).

    J_it = A_i log pi(y_it)

Exact on-policy only: stale tokens are not corrected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalerl.objective.losses import Loss
from scalerl.objective.ratios import own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Reinforce(Loss):
    """The textbook gradient; it has nothing to set."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """A_i log pi(y_it), (N, T); `behaviour` is not used."""
        log_probs, advantages = own_tokens(mask, log_probs, advantages)
        return advantages * log_probs
