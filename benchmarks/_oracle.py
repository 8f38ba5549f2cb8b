"""What can be known of a planted curve's ceiling: the posterior of somebody who is told the noise and the regime.

The noise is Gaussian AR(1) with the true standard deviation and correlation, the regime is the true one, and every other
prior is that of `scalerl.fit` (`curves/laws/sigmoid.py`, `curves/regimes.py`). Written apart from the package, as plain
sums over a dense grid of (log C_mid, log B[, log c]) and A; only R0 and R1, given which everything is normal, are integrated by hand:

    mean = R0 (1 - E) + R1 (E - S) + A S      A ~ U(0, 1), R1 | A ~ U(0, A), R0 ~ N(.25, .29) in two regimes, else R0 = R1

The grid is laid over the whole prior first and then, again and again, over the box that still holds posterior mass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from _planted import FloatArray, Planted
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr

_NUM_CELLS = {2: (64, 48), 3: (24, 18, 15)}
"""Along log C_mid, log B and, in two regimes, log c: ends within 2 % of the width of those on a grid 20 times as fine."""
_NUM_A = 160
_TEMPERS = (0.01, 0.04, 0.15, 0.5, 1.0, 1.0, 1.0, 1.0)
"""Power of the likelihood in each round: a narrow peak falls between the cells of the first grid, its flanks do not."""
_LOG_DROP = 12.0
"""A box holds all cells above exp(-12) of the heaviest one."""
_SETTLED = 0.8
"""The box is final once no edge shrinks below this share of itself."""
_R0_MEAN, _R0_SD = 0.25, 0.29


def ceiling_interval(planted: Planted, *, level: float = 0.9) -> tuple[float, float]:
    """The central interval of A."""
    problem = _Problem.of(planted)
    box = problem.prior_box()
    for temper in _TEMPERS:
        grid = problem.grid(box, temper=temper)
        smaller = grid.live_box()
        is_settled = temper == 1.0 and np.all(np.diff(smaller) > _SETTLED * np.diff(box))
        box = smaller
        if is_settled:
            break
    A, weight = problem.grid(box, temper=1.0).marginal_A()
    edges = np.concatenate([[0.0], np.cumsum(weight) / weight.sum()])
    half = 0.5 * (A[1] - A[0])
    low, high = np.interp([0.5 * (1.0 - level), 0.5 * (1.0 + level)], edges, np.concatenate([[A[0] - half], A + half]))
    return float(low), float(high)


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Log posterior density on a product grid."""

    axes: tuple[FloatArray, ...]
    """Mid-points along log C_mid, log B[, log c] and A."""
    live: FloatArray
    """(m, d) the cells that could hold mass."""
    log_density: FloatArray
    """(m, k) at those cells, for each A."""

    def live_box(self) -> FloatArray:
        """(d + 1, 2) the box of everything within `_LOG_DROP` of the peak, one cell wider on every side, as far as the old box goes."""
        kept = self.log_density > self.log_density.max() - _LOG_DROP
        spans = [(column[kept.any(axis=1)].min(), column[kept.any(axis=1)].max()) for column in self.live.T]
        A = self.axes[-1][kept.any(axis=0)]
        box = []
        for axis, (low, high) in zip(self.axes, [*spans, (A.min(), A.max())], strict=True):
            step = axis[1] - axis[0]
            box.append((max(low - 1.5 * step, axis[0] - 0.5 * step), min(high + 1.5 * step, axis[-1] + 0.5 * step)))
        return np.array(box)

    def marginal_A(self) -> tuple[FloatArray, FloatArray]:
        """The values of A with their share of the posterior mass."""
        return self.axes[-1], np.exp(self.log_density - self.log_density.max()).sum(axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """A curve, whitened by its known noise."""

    log_compute: FloatArray
    whitener: FloatArray
    """(n, n) maps residuals to independent ones of variance 1."""
    reward: FloatArray
    """(n,) whitened."""
    has_early_rise: bool

    @staticmethod
    def of(planted: Planted) -> _Problem:
        """The problem in units of the first positive compute."""
        curve, truth = planted.curve, planted.truth
        order = np.arange(len(curve))
        covariance = truth.noise_sd**2 * truth.rho ** np.abs(order[:, np.newaxis] - order)
        whitener = np.linalg.inv(np.linalg.cholesky(covariance))
        with np.errstate(divide="ignore"):
            log_compute = np.log(curve.compute / curve.compute[curve.compute > 0.0][0])
        return _Problem(log_compute, whitener, whitener @ curve.reward, truth.R1 is not None)

    def prior_box(self) -> FloatArray:
        """(d + 1, 2) the range of the prior."""
        log_last = self.log_compute[-1]
        box = [(-1.0, log_last + np.log(10.0)), (np.log(0.3), np.log(8.0))]
        if self.has_early_rise:
            box.append((-np.log(3.0), log_last - np.log(8.0)))
        return np.array([*box, (0.0, 1.0)])

    def grid(self, box: FloatArray, *, temper: float) -> _Grid:
        """The posterior over `box`, with the likelihood raised to the power `temper`."""
        numbers = (*_NUM_CELLS[len(box) - 1], _NUM_A)
        axes = tuple(low + (high - low) * (np.arange(k) + 0.5) / k for (low, high), k in zip(box, numbers, strict=True))
        cells = np.stack([axis.ravel() for axis in np.meshgrid(*axes[:-1], indexing="ij")], axis=1)
        log_prior = -0.5 * ((cells[:, 1] - np.log(2.0)) / 0.5) ** 2
        if self.has_early_rise:
            allowed = cells[:, 2] < cells[:, 0] - np.log(4.0)
            cells, log_prior = cells[allowed], log_prior[allowed]
        normal = self._normal(cells)
        most = log_prior + temper * normal.bound()
        kept = most > most.max() - 2.0 * _LOG_DROP
        log_density = log_prior[kept, np.newaxis] + temper * normal.at(kept).log_likelihood(axes[-1])
        return _Grid(axes, cells[kept], log_density)

    def _normal(self, cells: FloatArray) -> _Normal:
        """The likelihood of `cells` (m, d) as a function of (R1, A)."""
        S = expit(np.exp(cells[:, 1:2]) * (self.log_compute - cells[:, :1]))
        if not self.has_early_rise:
            return _Normal.of((1.0 - S) @ self.whitener.T, S @ self.whitener.T, self.reward)
        E = -np.expm1(-np.exp(np.minimum(self.log_compute - cells[:, 2:], 700.0)))
        at_start, white_S = (1.0 - E) @ self.whitener.T, S @ self.whitener.T
        at_R1 = (E - S) @ self.whitener.T
        # R0 ~ N(mean, sd) adds sd^2 v v' to the covariance, v the part of R0: the matrix that whitens it is I - k v v'.
        norm = (at_start**2).sum(axis=1, keepdims=True)
        root = np.sqrt(1.0 + _R0_SD**2 * norm)
        k = (1.0 - 1.0 / root) / np.maximum(norm, 1e-300)
        columns = at_R1, white_S, self.reward - _R0_MEAN * at_start
        u, w, y = (column - k * at_start * (at_start * column).sum(axis=1, keepdims=True) for column in columns)
        return _Normal.of(u, w, y, log_norm=-np.log(root[:, 0]))


@dataclass(frozen=True, slots=True, eq=False)
class _Normal:
    """m likelihoods exp(-|y - R1 u - A w|^2 / 2), arrays (m,)."""

    uu: FloatArray
    uw: FloatArray
    ww: FloatArray
    uy: FloatArray
    wy: FloatArray
    yy: FloatArray
    log_norm: FloatArray

    @staticmethod
    def of(u: FloatArray, w: FloatArray, y: FloatArray, *, log_norm: FloatArray | float = 0.0) -> _Normal:
        """From u and w (m, n), y (n,) or (m, n)."""
        y = np.broadcast_to(y, u.shape)
        uu, uw, ww, uy, wy, yy = ((a * b).sum(axis=1) for a, b in ((u, u), (u, w), (w, w), (u, y), (w, y), (y, y)))
        return _Normal(np.maximum(uu, 1e-9), uw, ww, uy, wy, yy, np.broadcast_to(log_norm, uu.shape))

    def at(self, kept: NDArray[np.bool_]) -> _Normal:
        """Those of `kept`."""
        return _Normal(*(getattr(self, name)[kept] for name in self.__slots__))

    def bound(self) -> FloatArray:
        """(m,) an upper bound of the log likelihood, the levels free to lie anywhere."""
        curvature = np.maximum(self.ww - self.uw**2 / self.uu, 1e-12)
        peak = self.wy - self.uw * self.uy / self.uu
        bound: FloatArray = self.log_norm - 0.5 * (self.yy - self.uy**2 / self.uu - peak**2 / curvature)
        return bound

    def log_likelihood(self, A: FloatArray) -> FloatArray:
        """(m, k) at A (k,), with R1 ~ U(0, A) integrated."""
        uu, uw, ww, uy, wy, yy, log_norm = (getattr(self, name)[:, np.newaxis] for name in self.__slots__)
        best = (uy - uw * A) / uu
        squares = yy - 2.0 * A * wy + A**2 * ww - uu * best**2
        inside = _log_normal_mass(-best * np.sqrt(uu), (A - best) * np.sqrt(uu))
        log_likelihood: FloatArray = log_norm - 0.5 * squares + inside + 0.5 * np.log(2.0 * np.pi / uu) - np.log(A)
        return log_likelihood


def _log_normal_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """Log probability of low .. high under the standard normal."""
    upper = low + high > 0.0
    low, high = np.where(upper, -high, low), np.where(upper, -low, high)
    log_mass: FloatArray = log_ndtr(high) + np.log1p(-np.exp(np.minimum(log_ndtr(low) - log_ndtr(high), -1e-16)))
    return log_mass
