"""What a law cannot see of itself: a collapse, and a trend in its residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalerl.records.curve import Curve, FloatArray

_LEAST_FALL = 0.05
"""Falls of less than this share of the reward's range are no collapse."""
_LEAST_FALL_OF_RISE = 0.25
"""A collapse loses at least this share of what was gained ..."""
_LEAST_FALL_IN_NOISE = 5.0
"""... and falls by this many standard deviations of the noise."""
_LEAST_T = 3.5
"""Student t of a residual trend; neighbours are correlated, so 2 would cry wolf."""


@dataclass(frozen=True, slots=True)
class Collapse:
    """A rise to a peak and a fall from it."""

    peak_compute: float
    peak: float
    last: float

    @staticmethod
    def of(curve: Curve) -> Collapse | None:
        """The collapse of `curve`, if the last three points lie clearly below the best three neighbours.

        Clearly: by a quarter of the rise, five times the noise, and .05 of the range of the reward.
        """
        if len(curve) < 6:
            return None
        reward = curve.reward
        smooth = np.median(np.lib.stride_tricks.sliding_window_view(reward, 3), axis=1)
        top, end = float(smooth.max()), float(smooth[-1])
        low, high = curve.bounds
        least = max(_LEAST_FALL * (high - low), _LEAST_FALL_OF_RISE * (top - float(smooth[0])), _LEAST_FALL_IN_NOISE * noise_sd(reward))
        if top - end <= least:
            return None
        # The peak lies among the three best neighbours: a lone spike elsewhere is none.
        first = int(np.argmax(smooth))
        peak = first + int(np.argmax(reward[first : first + 3]))
        return Collapse(float(curve.compute[peak]), float(reward[peak]), float(reward[-1]))


def noise_sd(reward: FloatArray) -> float:
    """Robust standard deviation of the noise of three and more rewards in order.

    Second differences are free of any smooth trend, and their median is not moved by a fall.
    """
    return float(np.median(np.abs(np.diff(reward, 2)))) / (0.6745 * math.sqrt(6.0))


def residual_trend(residuals: FloatArray) -> float:
    """Student t of a straight line through the last half of `residuals`, in their order; 0 where nothing stands out.

    A law that holds leaves none: a late decline or a second rise does.
    """
    late = residuals[residuals.size // 2 :]
    if late.size < 6:
        return 0.0
    order = np.arange(late.size, dtype=np.float64)
    r = np.corrcoef(order, late)[0, 1] if late.std() > 0.0 else 0.0
    t = float(r * np.sqrt((late.size - 2.0) / max(1.0 - r * r, 1e-12)))
    return t if abs(t) > _LEAST_T else 0.0
