"""The likelihood of a law's progress S alone: both levels and the noise integrated out.

    reward_i = start + (A - start) S_i + e_i,   e AR(1) in the order of the points with correlation rho,
    innovations of variance sigma^2 v_i, sigma^2 scaled inverse chi-square with nu_0 degrees around s_0^2

The sum of squares Q is quadratic in the levels. Integrating sigma leaves (nu_0 s_0^2 + Q)^(-(nu_0 + n) / 2); the start
level, uniform on [0, A], is then a Student t cut to that stretch, and A, uniform up to 1, is summed by the midpoint rule.

Arrays have the shape (m, r, k): m progresses, r correlations, k values of A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr, ndtri

from scalerl.curves.points import Points
from scalerl.records.curve import FloatArray

RHO = np.array([0.0, 0.25, 0.5, 0.75])
"""Correlations of neighbouring residuals: real runs wander about their trend."""
_LOG_RHO_PRIOR = np.log([0.4, 0.25, 0.2, 0.15])
_NUM_NODES = 12
"""Values of A for each progress and correlation."""
_LOG_DROP = 9.0
"""They span where the likelihood is above exp(-9) of its peak."""
_TINY = 1e-12
"""Floor of a curvature: a level that leaves no trace in the points has none."""
_LEAST_PROBABILITY = 1e-300
"""Floor beyond 37 standard deviations, where a double holds no probability."""
_LEAST_TRACE = 1e-9


_PRODUCTS = ("SS", "Sy", "uS", "uu", "uy", "yy", "rho")
"""The arrays of `Levels` that have a row for each progress."""


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Values of A with the log of their share of the likelihood."""

    A: FloatArray
    """(m, r, k)"""
    spacing: FloatArray
    """(m, r, 1)"""
    log_share: FloatArray
    """(m, r, k)"""

    @property
    def log_likelihood(self) -> FloatArray:
        """(m,) of each progress."""
        largest = self.log_share.max(axis=(1, 2))
        total: FloatArray = largest + np.log(np.exp(self.log_share - largest[:, np.newaxis, np.newaxis]).sum(axis=(1, 2)))
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """What the points say of both levels: inner products of S, u = 1 - S and the rewards y, under the AR(1) precision."""

    SS: FloatArray
    Sy: FloatArray
    uS: FloatArray
    uu: FloatArray
    uy: FloatArray
    yy: FloatArray
    rho: FloatArray
    fixed_start: float | None
    """The start level where the user gave it."""
    prior_squares: float
    """nu_0 s_0^2"""
    dof: float
    """nu_0 + n"""

    @staticmethod
    def of(points: Points, progress: FloatArray, *, fixed_start: float | None) -> Levels:
        """The inner products, of shape (m, r, 1), for `progress` (m, n)."""
        scale = 1.0 / np.sqrt(points.variance)
        S, y = progress * scale, points.reward * scale
        precise_one, precise_y = _times_precision(scale), _times_precision(y)
        S_one, Sy = S @ precise_one.T, S @ precise_y.T
        neighbours = np.einsum("mi,mi->m", S[:, 1:], S[:, :-1])[:, np.newaxis]
        ends = S[:, :1] ** 2 + S[:, -1:] ** 2
        SS = np.einsum("mi,mi->m", S, S)[:, np.newaxis] * (1.0 + RHO**2) - 2.0 * RHO * neighbours - RHO**2 * ends
        return Levels(
            SS=SS[..., np.newaxis],
            Sy=Sy[..., np.newaxis],
            uS=(S_one - SS)[..., np.newaxis],
            uu=np.maximum(precise_one @ scale - 2.0 * S_one + SS, _TINY)[..., np.newaxis],
            uy=(precise_y @ scale - Sy)[..., np.newaxis],
            yy=np.broadcast_to(precise_y @ y, SS.shape)[..., np.newaxis],
            rho=np.broadcast_to(RHO, SS.shape)[..., np.newaxis],
            fixed_start=fixed_start,
            prior_squares=points.noise_dof * points.noise_sd**2,
            dof=points.noise_dof + len(points),
        )

    @staticmethod
    def joined(parts: Sequence[Levels]) -> Levels:
        """The levels of all progresses of `parts`, which have the same points."""
        products: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _PRODUCTS}
        return replace(parts[0], **products)

    def at(self, progress: NDArray[np.intp], rho: NDArray[np.intp]) -> Levels:
        """One progress and one correlation for each draw: arrays (N,)."""
        return replace(self, **{name: getattr(self, name)[progress, rho, 0] for name in _PRODUCTS})

    def squares(self, start: FloatArray, A: FloatArray) -> FloatArray:
        """Q, the weighted sum of squared residuals."""
        of_A = self.yy + A * (A * self.SS - 2.0 * self.Sy)
        return np.maximum(of_A + start * (start * self.uu + 2.0 * (A * self.uS - self.uy)), 0.0)

    def best_start(self, A: FloatArray) -> FloatArray:
        """The start level of least squares given A, wherever it lies; or the fixed one."""
        if self.fixed_start is not None:
            return np.full_like(A, self.fixed_start)
        best: FloatArray = (self.uy - self.uS * A) / self.uu
        return best

    @property
    def has_free_start(self) -> bool:
        """Whether the start level is unknown and leaves a trace in the points."""
        return self.fixed_start is None and bool((self.uu > _LEAST_TRACE).any())

    def least_squares(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Least Q with 0 <= start <= A <= 1, inside or on an edge of that triangle, and the start and A where it lies."""
        return self._least_squares(self._peak()[0])

    def nodes(self) -> Nodes:
        """The likelihood as a function of A."""
        peak, curvature = self._peak()
        floor = self.fixed_start or 0.0
        # Q at the best start bounds the sum of squares from below, so every A beyond this reach has lost exp(-9).
        largest = (self.prior_squares + self._least_squares(peak)[0]) * np.exp(2.0 * _LOG_DROP / self.dof) - self.prior_squares
        reach = np.sqrt(np.maximum(largest - self.squares(self.best_start(peak), peak), 0.0) / curvature)
        low = np.minimum(np.maximum(floor, peak - reach), 1.0 - _TINY)
        spacing = np.maximum(np.minimum(1.0, peak + reach) - low, _TINY) / _NUM_NODES
        A = low + spacing * (np.arange(_NUM_NODES) + 0.5)
        log_prior = np.log1p(-(self.rho**2)) / 2.0 + _LOG_RHO_PRIOR[:, np.newaxis] - np.log(1.0 - floor)
        return Nodes(A, spacing, log_prior + np.log(spacing) + self._log_marginal(A))

    def draw_start(self, A: FloatArray, uniform: FloatArray) -> FloatArray:
        """The start level at `uniform` (0 .. 1) of its distribution given A."""
        if self.fixed_start is not None:
            return self.best_start(A)
        best, width = self.best_start(A), self._start_width(A)
        low, high = _normal_of_t(-best / width, self.dof - 1.0), _normal_of_t((A - best) / width, self.dof - 1.0)
        side = np.where(low + high > 0.0, -1.0, 1.0)
        low, high = np.minimum(side * low, side * high), np.maximum(side * low, side * high)
        below = ndtr(low)
        deviate = np.clip(ndtri(below + uniform * (ndtr(high) - below)), low, high)
        return np.clip(best + width * _t_of_normal(side * deviate, self.dof - 1.0), 0.0, A)

    def draw_noise_sd(self, start: FloatArray, A: FloatArray, uniform: FloatArray) -> FloatArray:
        """The standard deviation of a residual of relative variance 1, at `uniform` of its distribution given the levels."""
        # A chi-square is close to the cube of a normal deviate: Wilson and Hilferty (1931).
        spread = 2.0 / (9.0 * self.dof)
        chi_square = self.dof * np.maximum(1.0 - spread - np.sqrt(spread) * ndtri(uniform), _TINY) ** 3
        innovation_variance = (self.prior_squares + self.squares(start, A)) / chi_square
        sd: FloatArray = np.sqrt(innovation_variance / (1.0 - self.rho**2))
        return sd

    def _peak(self) -> tuple[FloatArray, FloatArray]:
        """A of least squares, wherever it lies, and the curvature of Q there, the start level following A."""
        if self.fixed_start is not None:
            curvature = np.maximum(self.SS, _TINY)
            return (self.Sy - self.fixed_start * self.uS) / curvature, curvature
        curvature = np.maximum(self.SS - self.uS**2 / self.uu, _TINY)
        return (self.Sy - self.uS * self.uy / self.uu) / curvature, curvature

    def _least_squares(self, peak: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self.fixed_start is not None:
            A = np.clip(peak, self.fixed_start, 1.0)
            start = self.best_start(A)
            return self.squares(start, A), start, A
        inside = np.clip(peak, 0.0, 1.0)
        at_zero = np.clip(self.Sy / np.maximum(self.SS, _TINY), 0.0, 1.0)
        one = np.ones_like(peak)
        ones, ones_y = self.uu + 2.0 * self.uS + self.SS, self.uy + self.Sy
        level = np.clip(ones_y / ones, 0.0, 1.0)
        starts = np.stack(
            [np.clip(self.best_start(inside), 0.0, inside), np.zeros_like(peak), np.clip(self.best_start(one), 0.0, 1.0), level]
        )
        ceilings = np.stack([inside, at_zero, one, level])
        squares = self.squares(starts, ceilings)
        least = squares.argmin(axis=0)[np.newaxis]
        at_least = [np.take_along_axis(candidates, least, axis=0)[0] for candidates in (squares, starts, ceilings)]
        return at_least[0], at_least[1], at_least[2]

    def _start_width(self, A: FloatArray) -> FloatArray:
        """Scale of the Student t of the start level given A."""
        squares = self.prior_squares + self.squares(self.best_start(A), A)
        width: FloatArray = np.sqrt(squares / ((self.dof - 1.0) * self.uu))
        return width

    def _log_marginal(self, A: FloatArray) -> FloatArray:
        """Log likelihood of A, the noise and a free start level integrated."""
        best = self.best_start(A)
        log_squares = np.log(self.prior_squares + self.squares(best, A))
        if self.fixed_start is not None:
            return -0.5 * self.dof * log_squares
        dof = self.dof - 1.0
        width = np.exp(0.5 * log_squares) / np.sqrt(dof * self.uu)
        log_inside = _log_normal_mass(_normal_of_t(-best / width, dof), _normal_of_t((A - best) / width, dof))
        log_norm = 0.5 * np.log(np.pi / self.uu) + gammaln(0.5 * dof) - gammaln(0.5 * self.dof)
        log_marginal: FloatArray = log_norm - 0.5 * dof * log_squares + log_inside - np.log(A)
        return log_marginal


def _times_precision(x: FloatArray) -> FloatArray:
    """(r, n) the AR(1) precision for each correlation, innovations of variance 1, times x (n,)."""
    neighbours = np.zeros_like(x)
    neighbours[1:] += x[:-1]
    neighbours[:-1] += x[1:]
    inside = np.ones_like(x)
    inside[[0, -1]] = 0.0
    rho = RHO[:, np.newaxis]
    return x + rho**2 * inside * x - rho * neighbours


def _normal_of_t(t: FloatArray, dof: float) -> FloatArray:
    """The normal deviate of the same probability as a Student t: Wallace (1959), absolute error of probability below .001."""
    return np.copysign((8.0 * dof + 1.0) / (8.0 * dof + 3.0) * np.sqrt(dof * np.log1p(t * t / dof)), t)


def _t_of_normal(deviate: FloatArray, dof: float) -> FloatArray:
    """The inverse of `_normal_of_t`."""
    scaled = deviate * (8.0 * dof + 3.0) / (8.0 * dof + 1.0)
    return np.copysign(np.sqrt(dof * np.expm1(scaled * scaled / dof)), deviate)


def _log_normal_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """Log probability of low .. high under the standard normal, taken in the lower tail, where it is exact."""
    upper = low + high > 0.0
    mass = ndtr(np.where(upper, -low, high)) - ndtr(np.where(upper, -high, low))
    log_mass: FloatArray = np.log(np.maximum(mass, _LEAST_PROBABILITY))
    return log_mass
