"""DAPO: the clipped ratio with a wider upper bound (arXiv 2503.14476, eq. 8-10).

J_it = min(rho_it A_i, clip(rho_it, 1 - clip_low, 1 + clip_high) A_i)
"""

from pydantic import Field

from scalerl.objective.losses import Loss


class Dapo(Loss):
    """Asymmetric clipping: unlikely tokens may gain more than likely ones lose."""

    clip_low: float = Field(default=0.2, ge=0.0, le=1.0)
    """Offset below 1 at which the ratio is clipped."""
    clip_high: float = Field(default=0.26, ge=0.0)
    """Offset above 1 at which the ratio is clipped: .26 in arXiv 2510.13786, .28 in the original."""
