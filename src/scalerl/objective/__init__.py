"""The objective: losses, advantages, aggregations and length control, as pure functions of tensors.

    rho_it = exp(log pi(y_it) - log pi_gen(y_it))          A_i = r_i - mean_j r_j          no KL term unless asked for

pi_gen is the generator with the version that sampled each token; pi is the policy in training (arXiv 2510.13786, section 2).
"""

from __future__ import annotations

from scalerl.core.components import Settings
from scalerl.objective.advantages import Advantage
from scalerl.objective.aggregations import Aggregation
from scalerl.objective.losses import Loss
from scalerl.objective.terms import Term


class Objective(Settings):
    """What the policy is trained on."""

    loss: Loss
    advantage: Advantage
    aggregation: Aggregation
    terms: tuple[Term, ...] = ()
    """What is added to the loss, such as a KL penalty; nothing by default."""
