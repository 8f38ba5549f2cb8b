"""GRPO: PPO's clipped ratio without a critic (DeepSeekMath, arXiv 2402.03300, eq. 3).

    J_it = min(rho_it A_i, clip(rho_it, 1 - clip, 1 + clip) A_i)

The advantage's group scale and the sample aggregation that GRPO is known by are ingredients of their own.
"""

from pydantic import Field

from scalerl.objective.losses import ClippedRatio


class Grpo(ClippedRatio):
    """Symmetric clipping of the token's ratio."""

    clip: float = Field(default=0.2, ge=0.0, le=1.0)
    """Offset from 1 at which the ratio is clipped, on both sides."""

    def bounds(self) -> tuple[float, float, float | None]:
        """`clip` on both sides, and no dual clip."""
        return self.clip, self.clip, None
