"""KL towards a frozen reference policy: J_it -= coefficient k(d_it), with d_it = log pi_ref(y_it) - log pi(y_it)
(J. Schulman 2020, "Approximating KL divergence"; k3 as in GRPO, arXiv 2402.03300, eq. 4).

    estimator   value            expected value     its gradient             expected gradient, for y from pi
    k1          -d               KL(pi || ref)      grad log pi              0: it holds nothing back
    k2          d^2 / 2          biased             -d grad log pi           that of KL(pi || ref)
    k3          exp(d) - d - 1   KL(pi || ref)      (1 - exp(d)) grad log pi that of KL(ref || pi)

An unbiased value is no unbiased gradient: differentiating an estimate leaves out that the samples depend on pi. So k1 as a
loss only adds noise, k2 is the penalty that its name promises, and k3 pulls to the reference as forward KL does. None is
weighted by the importance ratio: of stale tokens the expectations hold nearly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from scalerl.objective.ratios import LARGEST_LOG_RATIO, own_tokens
from scalerl.objective.terms import Term

if TYPE_CHECKING:
    from torch import Tensor


class Kl(Term):
    """Holds the policy near the one that it started from."""

    needs_reference: ClassVar[bool] = True

    estimator: Literal["k1", "k2", "k3"] = "k3"
    """How the divergence is estimated from the sampled token: k3 is never negative and of low variance, k2 has the right gradient."""

    def objective(
        self,
        log_probs: Tensor,
        behaviour: Tensor,  # noqa: ARG002
        reference: Tensor | None,
        entropy: Tensor | None,  # noqa: ARG002
        mask: Tensor,
    ) -> Tensor:
        """-`coefficient` times the estimate, (N, T); a token that the reference likes e^20 times more has no gradient in k3."""
        assert reference is not None, "the trainer gives it to terms that need it"
        log_probs, reference = own_tokens(mask, log_probs, reference)
        return -self.coefficient * self._divergence(reference - log_probs)

    def _divergence(self, d: Tensor) -> Tensor:
        if self.estimator == "k1":
            return -d
        if self.estimator == "k2":
            return 0.5 * d.square()
        d = d.clamp(max=LARGEST_LOG_RATIO)
        # exp(d) - 1 loses every digit of d^2 / 2 in fp32 once d is below 1e-4.
        return d.expm1() - d
