"""GSPO: one length-normalised ratio per completion (arXiv 2507.18071, eq. 5-7).

    s_i = exp(mean_t log rho_it)           J_i = min(s_i A_i, clip(s_i, 1 - clip_low, 1 + clip_high) A_i)

The mean runs over the unmasked tokens; a completion is never split across micro-batches.
"""

from pydantic import Field

from scalerl.objective.losses import Loss


class Gspo(Loss):
    """Clipping decides over whole completions instead of tokens."""

    clip_low: float = Field(default=3e-3, ge=0.0, le=1.0)
    """Offset below 1. The ratio is length-normalised, so sensible ranges shrink with length."""
    clip_high: float = Field(default=5e-3, ge=0.0)
    """Offset above 1; 3e-3 and 5e-3 were the best pair of arXiv 2510.13786."""
