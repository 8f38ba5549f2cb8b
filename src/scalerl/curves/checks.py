"""What a law cannot see of itself: a collapse, and a trend in its residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scalerl.curves.levels import RHO
from scalerl.curves.points import noise_sd
from scalerl.records.curve import Curve, FloatArray

_LEAST_FALL = 0.05
"""Falls of less than this share of the reward's range are no collapse."""
_LEAST_FALL_OF_RISE = 0.25
"""A collapse loses at least this share of what was gained ..."""
_LEAST_FALL_IN_NOISE = 5.0
"""... and falls by this many standard deviations of the noise."""
_FEWEST_TO_BEND = 8
"""Points from which on a late change can be told from the law ..."""
_LATE = 2.0 / 3.0
"""... in their last third."""
_LEAST_FREEDOM = 0.5
"""Directions in which the draws of the mean spread by more than this share of the residuals are the law's own freedom; ..."""
_MOST_DIRECTIONS = 6
"""... so many at most."""
_USUAL_FREEDOM = 5
"""Unknowns of a law and a kink."""
_LEAST_SD = 3e-4
"""Of a residual: finer than evaluations are, and than the quadrature."""
_LEAST_RATIO = 7.0
"""Passed falsely, down or up, by 2 in 100 planted curves each (`benchmarks/coverage.py`)."""


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


def late_change(residuals: FloatArray, means: FloatArray, compute: FloatArray) -> float:
    """Signed twice-log likelihood ratio of a kink in the last third of the points, below 0 where rewards bend down; 0 if it is no more
    than chance.

    The law half absorbs a late change, so its own freedom, the leading directions of the draws of its mean, is fitted along
    with the kink; neighbouring residuals may be correlated.

    Args:
        residuals: (n,) of the posterior mean, in shares of the reward's range.
        means: (N, n) draws of the mean at the points.
        compute: (n,) of the points.
    """
    n = residuals.size
    bend = min(int(_LATE * n), n - 3)
    if n < _FEWEST_TO_BEND or compute[-1] <= compute[bend]:
        return 0.0
    kink = np.clip((compute - compute[bend]) / (compute[-1] - compute[bend]), 0.0, 1.0)
    _, spreads, directions = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    is_free = spreads > _LEAST_FREEDOM * residuals.std() * math.sqrt(len(means))
    law = directions[is_free][: min(_MOST_DIRECTIONS, n // 3)].T
    (without, _), (with_kink, size) = (_best_regression(residuals, columns) for columns in (law, np.column_stack([law, kink])))
    ratio = 2.0 * (with_kink - without)
    return math.copysign(ratio, size) if ratio > _LEAST_RATIO else 0.0


def _best_regression(residuals: FloatArray, columns: FloatArray) -> tuple[float, float]:
    """The largest log likelihood over AR(1) correlations of a regression on `columns`, up to a constant, and its last coefficient."""
    n = residuals.size
    found = []
    for rho in RHO.ravel().tolist():
        table = np.column_stack([columns, residuals])
        white = table - rho * np.vstack([np.zeros_like(table[:1]), table[:-1]])
        white[0] *= math.sqrt(1.0 - rho**2)
        sizes = np.linalg.lstsq(white[:, :-1], white[:, -1], rcond=None)[0]
        squares = float(np.sum((white[:, -1] - white[:, :-1] @ sizes) ** 2)) + n * _LEAST_SD**2
        log_likelihood = 0.5 * math.log(1.0 - rho**2) - 0.5 * (n - _USUAL_FREEDOM) * math.log(squares)
        found.append((log_likelihood, float(sizes[-1]) if sizes.size else 0.0))
    return max(found)
