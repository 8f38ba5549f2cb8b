"""The points that enter a fit, in the units that laws work in.

Rewards run from 0 to 1 between the bounds of the grader and compute is log(C / C_first), so that the fit of a curve in
percent against FLOP is that of the same curve in fractions against GPU-hours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from scalerl.records.curve import Curve, FloatArray

_USUAL_SD = 0.006
"""Noise of an evaluation whose trials are unknown: the residuals of the paper's curves are .002 - .005 with 16,000 trials a point."""
_LARGEST_SD = 0.015
"""Few trials permit noise far above this, but make it no likelier than that of a thousand."""
_NOISE_DOF = 2.0
"""The prior of the noise is worth two points: broad, as a fixed set of prompts or greedy answers may vary far less than the binomial."""
_LEAST_SHARE_OF_SD = 0.1
"""Rewards that seem to have less noise than this share of its prior's centre are too few to tell."""
_KNOWN_VARIANCE = 1e-6
"""Relative noise variance of what is known: a thousandth of the noise of a point."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """n points, sorted by compute; arrays of shape (n,)."""

    log_compute: FloatArray
    """log(C / C_first): 0 at the first point of positive compute, -inf at zero compute."""
    reward: FloatArray
    """0 .. 1 between the bounds."""
    variance: FloatArray
    """Noise variance of each point relative to their mean."""
    noise_sd: float
    """Prior scale of the noise: its soft centre, in units of `reward`."""
    noise_dof: float
    """How many points that prior is worth."""
    rough_sd: float
    """What the noise seems to be before any law is known, at most `noise_sd`."""
    R0: float | None
    """The start level where the user gave it, in units of `reward`."""
    first_compute: float
    bounds: tuple[float, float]

    @staticmethod
    def of(curve: Curve, *, R0: float | None = None) -> Points:
        """Every point of `curve`, which has one of positive compute; `R0` in the unit of its rewards."""
        low, high = curve.bounds
        reward = (curve.reward - low) / (high - low)
        variance, prior_sd = _noise_prior(reward, curve.trials)
        first_compute = float(curve.compute[curve.compute > 0.0][0])
        return Points(
            log_compute=_log_ratio(curve.compute, first_compute),
            reward=reward,
            variance=variance,
            noise_sd=prior_sd,
            noise_dof=_NOISE_DOF,
            rough_sd=_rough_sd(reward, prior_sd=prior_sd),
            R0=None if R0 is None else (R0 - low) / (high - low),
            first_compute=first_compute,
            bounds=curve.bounds,
        )

    def __len__(self) -> int:
        return int(self.reward.size)

    @property
    def log_last(self) -> float:
        """Log of the last compute relative to the first positive one."""
        return float(self.log_compute[-1])

    def positive(self) -> Points:
        """Those of positive compute."""
        kept = self.log_compute > -np.inf
        return replace(self, log_compute=self.log_compute[kept], reward=self.reward[kept], variance=self.variance[kept])

    def with_ceiling(self, A: float) -> Points:
        """With A known, in units of `reward`: an evaluation all but without noise at infinite compute, where every law has arrived.

        It stands first, so that the last point stays the last evaluation.
        """
        return replace(
            self,
            log_compute=np.concatenate([[np.inf], self.log_compute]),
            reward=np.concatenate([[A], self.reward]),
            variance=np.concatenate([[_KNOWN_VARIANCE], self.variance]),
        )

    def log_of(self, compute: FloatArray) -> FloatArray:
        """`compute` of the curve's axis as log(C / C_first)."""
        return _log_ratio(compute, self.first_compute)

    def to_reward(self, reward: FloatArray) -> FloatArray:
        """A reward between 0 and 1 in the unit of the curve, cut to its bounds."""
        low, high = self.bounds
        clipped: FloatArray = low + (high - low) * np.clip(reward, 0.0, 1.0)
        return clipped


def _log_ratio(compute: FloatArray, reference: float) -> FloatArray:
    with np.errstate(divide="ignore"):
        log_ratio: FloatArray = np.log(compute) - math.log(reference)
    return log_ratio


def noise_sd(reward: FloatArray) -> float:
    """Robust standard deviation of the noise of three and more rewards in order.

    Second differences are free of any smooth trend, and their median is not moved by a fall.
    """
    return float(np.median(np.abs(np.diff(reward, 2)))) / (0.6745 * math.sqrt(6.0))


def _rough_sd(reward: FloatArray, *, prior_sd: float) -> float:
    """Few points on a steep climb scatter by more than their noise: the prior's centre is the most that is believed of them."""
    return prior_sd if reward.size < 3 else float(np.clip(noise_sd(reward), _LEAST_SHARE_OF_SD * prior_sd, prior_sd))


def _noise_prior(reward: FloatArray, trials: FloatArray | None) -> tuple[FloatArray, float]:
    """Relative variances and soft centre of the noise.

    The held-out prompts are fixed, so the binomial variance p (1 - p) / n is a ceiling of the noise and no floor: it
    shapes the relative variances, and lowers the centre where there are many trials.
    """
    if trials is None:
        return np.ones_like(reward), _USUAL_SD
    padded = np.concatenate([reward[:1], reward, reward[-1:]])
    share = np.convolve(padded, np.full(3, 1.0 / 3.0), mode="valid")
    # Half a success and half a failure more keep a point at 0 or 1 from claiming no noise at all.
    share = (share * trials + 0.5) / (trials + 1.0)
    variance = share * (1.0 - share) / trials
    mean_variance = float(variance.mean())
    return variance / mean_variance, min(math.sqrt(mean_variance), _LARGEST_SD)
