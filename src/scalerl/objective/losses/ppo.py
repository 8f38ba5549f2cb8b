"""PPO: the clipped ratio (arXiv 1707.06347, eq. 7), if wanted with a second bound for A < 0 (dual clip, arXiv 1912.09729, eq. 5).

    J_it = min(rho_it A_it, clip(rho_it, 1 - clip, 1 + clip) A_it)           with a dual clip, where A < 0: max(J_it, dual_clip A_it)

The token objective is GRPO's; PPO's own is the critic, an advantage that differs from token to token.
"""

from pydantic import Field

from scalerl.objective.losses import ClippedRatio


class Ppo(ClippedRatio):
    """Symmetric clipping of the token's ratio, and a floor under what one bad token can cost."""

    clip: float = Field(default=0.2, ge=0.0, le=1.0)
    """Offset from 1 at which the ratio is clipped, on both sides."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """Largest ratio at which a token with A < 0 is still trained on: an ABSOLUTE ratio, often 3; none: there is no such bound."""

    def bounds(self) -> tuple[float, float, float | None]:
        """`clip` on both sides, and the dual clip."""
        return self.clip, self.clip, self.dual_clip
