"""DAPO: the clipped ratio with a wider upper bound (arXiv 2503.14476, eq. 8-10).

    J_it = min(rho_it A_i, clip(rho_it, 1 - clip_low, 1 + clip_high) A_i)        with a dual clip, where A < 0: max(J_it, dual_clip A_i)

The dual clip (arXiv 1912.09729, eq. 5) is off, as in the paper; verl always has one, of 3 by default.
"""

from pydantic import Field

from scalerl.objective.losses import ClippedRatio


class Dapo(ClippedRatio):
    """Asymmetric clipping: unlikely tokens may gain more than likely ones lose."""

    clip_low: float = Field(default=0.2, ge=0.0, le=1.0)
    """Offset below 1 at which the ratio is clipped."""
    clip_high: float = Field(default=0.26, ge=0.0)
    """Offset above 1 at which the ratio is clipped: .26 in arXiv 2510.13786, .28 in the original."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """Largest ratio at which a token with A < 0 is still trained on: an ABSOLUTE ratio; none: there is no such bound."""

    def bounds(self) -> tuple[float, float, float | None]:
        """`clip_low` and `clip_high`, and the dual clip."""
        return self.clip_low, self.clip_high, self.dual_clip
