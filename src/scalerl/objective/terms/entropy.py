"""Entropy bonus: J_it += coefficient H_it, with H_it = -sum_v pi(v) log pi(v) at the token's position (Williams & Peng 1991).

Its gradient is exact for the position, whoever sampled the token, and pushes every distribution towards the uniform one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scalerl.objective.ratios import own_tokens
from scalerl.objective.terms import Term

if TYPE_CHECKING:
    from torch import Tensor


class Entropy(Term):
    """Holds off the collapse of the policy onto few answers."""

    needs_entropy: ClassVar[bool] = True

    def objective(
        self,
        log_probs: Tensor,  # noqa: ARG002
        behaviour: Tensor,  # noqa: ARG002
        reference: Tensor | None,  # noqa: ARG002
        entropy: Tensor | None,
        mask: Tensor,
    ) -> Tensor:
        """`coefficient` times the entropy in nats, (N, T)."""
        assert entropy is not None, "the trainer gives it to terms that need it"
        (entropy,) = own_tokens(mask, entropy)
        return self.coefficient * entropy
