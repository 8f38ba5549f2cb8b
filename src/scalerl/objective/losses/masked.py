"""Masked importance sampling: what the sampler and the policy disagree on is left out, not cut down to a bound.

    J_it = sg(w_it 1[low <= w_it <= high]) A_i log pi(y_it)

    level        w_it                                             paper's bounds
    token        rho_it                                           .5, 5 (IcePop, Ling team 2025, arXiv 2510.18855)
    sequence     prod_t rho_it over the completion's own tokens   0, C (MIS: Liu, Li et al. 2025, "When Speed Kills Stability")
    geometric    its T-th root, exp(mean_t log rho_it)            near 1, say .99, 1.01 (Geo-MIS, the same authors)

As in `truncated`, the papers' factor min(pi_old / pi_gen ...) times the proximal ratio pi / pi_old is one ratio here, since one
batch makes one update. Masked tokens keep their place in the denominators of the aggregation, as in the papers' sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from scalerl.objective.losses import Loss
from scalerl.objective.ratios import Level, exp_ratio, log_ratios, own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Masked(Loss):
    """Tokens, or whole completions, outside of the bounds have no gradient; those inside weigh their ratio."""

    level: Level = "token"
    """What one weight belongs to: a token, or a completion, whose weight is the product or the geometric mean over its tokens."""
    low: float = Field(default=0.5, ge=0.0)
    """Least importance weight that is trained on: an ABSOLUTE ratio. 0: no lower bound."""
    high: float = Field(default=5.0, gt=0.0)
    """Largest importance weight that is trained on: an ABSOLUTE ratio. At level "geometric" sensible bounds lie close to 1."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The weight, 0 outside of the bounds, times A_i log pi(y_it), (N, T)."""
        weights = exp_ratio(log_ratios(log_probs, behaviour, mask, level=self.level)).detach()
        weights = weights.where(self._kept(weights), 0.0)
        log_probs, advantages = own_tokens(mask, log_probs, advantages)
        return weights * advantages * log_probs

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """Tokens that are left out; of a completion all or none, unless the level is "token"."""
        return mask & ~self._kept(exp_ratio(log_ratios(log_probs, behaviour, mask, level=self.level)))

    def _kept(self, weights: Tensor) -> Tensor:
        return (weights >= self.low) & (weights <= self.high)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must lie below high {self.high}: nothing would be trained on")
        return self
