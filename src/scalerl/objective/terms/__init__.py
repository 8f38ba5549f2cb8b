"""Terms: what may be added to a loss's objective, token by token, before any sum. The family's base; by default there are none.

J_it is to be maximised: a penalty enters with a minus. A term is summed with the weights of the loss, needs tensor methods
only, and is not corrected for the sampler: its expectation is over what pi_gen sampled.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from scalerl.core.components import Component

if TYPE_CHECKING:
    from torch import Tensor


class Term(Component, family="terms"):
    """Something else that the policy is to care about besides its advantages."""

    needs_reference: ClassVar[bool] = False
    """Whether the log-probs of a frozen reference policy are needed; its memory and forward pass cost."""
    needs_entropy: ClassVar[bool] = False
    """Whether the entropy of each token's distribution is needed, with its gradient."""

    coefficient: float = Field(gt=0.0, examples=[0.001])
    """How much the term weighs beside a loss whose advantages are about 1."""

    @abstractmethod
    def objective(self, log_probs: Tensor, behaviour: Tensor, reference: Tensor | None, entropy: Tensor | None, mask: Tensor) -> Tensor:
        """What is added to J of every token, (N, T) in fp32 or wider, exactly 0 where `mask` is False, and so its gradient.

        Args:
            log_probs: (N, T) log pi(y_it) in nats of the policy in training, which carry the gradient.
            behaviour: (N, T) log pi_gen(y_it) of the version that sampled each token; a constant.
            reference: (N, T) log pi_ref(y_it), a constant; None unless `needs_reference`.
            entropy: (N, T) entropy in nats of pi at each position, which carries the gradient; None unless `needs_entropy`.
            mask: (N, T) True for the policy's own tokens. Elsewhere anything may stand in the others, NaN included.
        """
