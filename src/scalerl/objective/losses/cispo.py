"""CISPO: truncated importance weights on plain policy gradient (MiniMax-M1, arXiv 2506.13585; arXiv 2510.13786, eq. 4).

J_it = sg(min(rho_it, cap)) A_i log pi(y_it)           sg: no gradient flows through the weight
"""

from pydantic import Field

from scalerl.objective.losses import Loss


class Cispo(Loss):
    """Every token keeps a gradient, whatever its ratio; none weighs more than `cap`."""

    cap: float = Field(default=5.0, gt=0.0)
    """Largest importance weight: an ABSOLUTE ratio. Libraries that store an offset (1 + eps) write 4.0 for 5.0 here."""
