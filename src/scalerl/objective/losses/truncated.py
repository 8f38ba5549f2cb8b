"""Truncated importance sampling, of tokens or of whole completions (TIS: Yao et al. 2025, "Your Efficient RL Framework
Secretly Brings You Off-Policy RL Training"; of sequences: Liu, Li et al. 2025, "When Speed Kills Stability").

    J_it = sg(min(w_it, cap)) A_i log pi(y_it)           w_it = rho_it, or prod_t rho_it over the completion's own tokens

The papers correct PPO: min(pi_old / pi_gen, cap) times the clipped objective of pi / pi_old, pi_old being the trainer's own
log-probs at the start of the batch. Here one batch makes one update, so pi = pi_old: the proximal ratio is 1, never
clipped, and its gradient is that of log pi, while pi_old / pi_gen is pi / pi_gen. What is left is the line above.
At level "token" that is CISPO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from scalerl.objective.losses import Loss
from scalerl.objective.ratios import exp_ratio, log_ratios, own_tokens

if TYPE_CHECKING:
    from torch import Tensor


class Truncated(Loss):
    """Every token keeps a gradient; the weight that corrects for the sampler ends at `cap`."""

    level: Literal["token", "sequence"] = "token"
    """What one weight belongs to: a token, or a completion, whose weight is the product over its tokens: unbiased up to the cap."""
    cap: float = Field(default=2.0, gt=0.0)
    """Largest importance weight: an ABSOLUTE ratio."""

    def objective(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        """The truncated weight times A_i log pi(y_it), (N, T)."""
        weights = exp_ratio(log_ratios(log_probs, behaviour, mask, level=self.level)).clamp(max=self.cap).detach()
        log_probs, advantages = own_tokens(mask, log_probs, advantages)
        return weights * advantages * log_probs

    def clipped(self, log_probs: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002
        """Tokens whose weight is `cap`, whatever their advantage; of a completion all or none at level "sequence"."""
        return mask & (exp_ratio(log_ratios(log_probs, behaviour, mask, level=self.level)) > self.cap)
