"""The likelihood of a course alone: the levels and the noise integrated out.

    reward_i = R0 (1 - E_i) + start (E_i - S_i) + A S_i + e_i,   e AR(1) in the order of the points with correlation rho,
    innovations of variance sigma^2 v_i, sigma^2 scaled inverse chi-square with nu_0 degrees around s_0^2

Without an early phase E is 1 and the start level is R0. With one, R0 is a nuisance: given, or normal and projected out of
every inner product. The sum of squares Q is quadratic in the two levels that are left. Integrating sigma leaves
(nu_0 s_0^2 + Q)^(-(nu_0 + n) / 2); the start level, uniform on [floor, A], is then a Student t cut to that stretch, and
A, uniform up to 1, is summed by the midpoint rule.

Arrays have the shape (r, m), r correlations and m courses, or (p,) for any p of those pairs; k nodes of A add an axis in front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtr, ndtri

from scalerl.curves.points import Points
from scalerl.curves.regimes import Course
from scalerl.records.curve import FloatArray

RHO = np.array([[0.0], [0.25], [0.5], [0.75]])
"""(r, 1) correlations of neighbouring residuals: real runs wander about their trend."""
_RHO_PRIOR = np.array([[0.4], [0.25], [0.2], [0.15]])
_PRECISION = np.hstack([1.0 + RHO**2, -RHO, -(RHO**2)])
"""The AR(1) precision for each correlation, innovations of variance 1: its weights of the sums of products of equal
points, of neighbours, and of the two ends alone."""
_R0_CENTRE, _R0_SD = 0.25, 0.29
"""Normal prior of an R0 that an early phase has left behind: about where base models stand, and all but flat. Its width is in
units of the noise, so that R0 can be projected out: this wide where the noise is what it seems before any law is known."""
_LOG_DROP = 7.0
"""Values of A span where the likelihood is above exp(-7) of its peak."""
_TINY = 1e-12
"""Floor of a curvature: a level that leaves no trace in the points has none."""
_LEAST_PROBABILITY = 1e-300
"""Floor beyond 37 standard deviations, where a double holds no probability."""
_ROUNDING = 1e-12
"""Of Q, as a share of yy: what is left of it after rewards cancel."""
_LEAST_TRACE = 1e-9
"""Of a start level in the points: uu."""
_LEAST_SLOPE, _LARGEST_SLOPE = 1e-6, 100.0
"""A log likelihood that changes by less over a stretch is even, one that changes by more is all at one end."""
_ARRAYS = ("SS", "Sy", "uS", "uu", "uy", "yy", "wS", "wu", "wy", "R0_precision", "rho", "log_weight")
"""Of `Levels`."""


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The middles of stretches of A with the log of each one's share of the likelihood, whose logarithm is taken for straight in it."""

    A: FloatArray
    """(k, p)"""
    spacing: FloatArray
    """(p,)"""
    log_share: FloatArray
    """(k, p)"""
    slope: FloatArray
    """(k, p) change of the log likelihood over a stretch."""

    @staticmethod
    def of(A: FloatArray, spacing: FloatArray, log_likelihood: FloatArray) -> Nodes:
        """For the log likelihood (k, p) in the middles."""
        slope = np.gradient(log_likelihood, axis=0)
        # Where the likelihood is exp(slope x), 3 (sqrt(1 + slope^2 / 36) - 1) is log sinh(slope / 2) / (slope / 2) to 6 %, however steep.
        of_slope, of_bend = 3.0 * (np.sqrt(1.0 + slope**2 / 36.0) - 1.0), np.gradient(slope, axis=0) / 24.0
        return Nodes(A, spacing, log_likelihood + np.log(spacing) + of_slope + of_bend, slope)

    def within(self, chosen: NDArray[np.intp], uniform: FloatArray) -> FloatArray:
        """(N,) values of A at `uniform` of the distribution in the `chosen` stretches, numbered along p first."""
        slope = self.slope.take(chosen)
        slope = np.copysign(_within(np.abs(slope), _LEAST_SLOPE, _LARGEST_SLOPE), slope)
        share = np.log1p(uniform * np.expm1(slope)) / slope
        drawn: FloatArray = self.A.take(chosen) + (share - 0.5) * self.spacing.take(chosen % self.spacing.size)
        return drawn


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """The points as the levels see them, whatever the course: weighted by their noise, with what is known of R0."""

    weight: FloatArray
    """(n,) 1 / sqrt(v): what rewards and columns are multiplied with."""
    precise_y: FloatArray
    """(r, n) the AR(1) precision times the weighted rewards y."""
    yy: FloatArray
    """(r, 1)"""
    R0_centre: float
    R0_weight: float
    """Weight of R0's prior: its precision in units of the noise's. Infinite where R0 is given, or is the start level."""
    fixed_start: float | None
    """The start level where that is R0, and given."""
    floor: float
    """Least start level."""
    log_prior: FloatArray
    """(r, 1) of each correlation, with the determinant of its precision and the density of A, uniform above the floor."""
    prior_squares: float
    """nu_0 s_0^2"""
    dof: float
    """nu_0 + n"""

    @staticmethod
    def of(points: Points, *, given_R0: float | None, has_early_phase: bool) -> Observed:
        """`points` under a regime; R0 where the user gave it."""
        weight = 1.0 / np.sqrt(points.variance)
        y = points.reward * weight
        precise_y = _times_precision(y)
        is_left_behind = has_early_phase and given_R0 is None
        floor = given_R0 or 0.0
        return Observed(
            weight=weight,
            precise_y=precise_y,
            yy=precise_y @ y[:, np.newaxis],
            R0_centre=_R0_CENTRE if is_left_behind else floor,
            R0_weight=(points.rough_sd / _R0_SD) ** 2 if is_left_behind else math.inf,
            fixed_start=None if has_early_phase else given_R0,
            floor=floor,
            log_prior=np.log(_RHO_PRIOR * np.sqrt(1.0 - RHO**2) / (1.0 - floor)),
            prior_squares=points.noise_dof * points.noise_sd**2,
            dof=points.noise_dof + len(points),
        )

    def levels(self, course: Course) -> Levels:
        """What the points say of the levels, (r, m), for `course` (m, n)."""
        S, u = course.S * self.weight, (course.E - course.S) * self.weight
        SS = _inner(S, S)
        none = np.zeros_like(SS)
        levels = Levels(
            observed=self,
            SS=SS,
            Sy=self.precise_y @ S.T,
            uS=_inner(u, S),
            uu=np.maximum(_inner(u, u), _TINY),
            uy=self.precise_y @ u.T,
            yy=none + self.yy,
            wS=none,
            wu=none,
            wy=none,
            R0_precision=none,
            rho=none + RHO,
            log_weight=none + self.log_prior,
        )
        if not course.has_early_phase:
            return levels
        w = (1.0 - course.E) * self.weight
        return levels.without_R0(wS=_inner(w, S), wu=_inner(w, u), ww=_inner(w, w), wy=self.precise_y @ w.T)


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Inner products under the AR(1) precision of S, u = E - S, the rewards y and w = 1 - E.

    R0's prior is worth a weight added to ww. Where w is no factor, R0 is projected out; y counts from R0's centre.
    """

    observed: Observed
    SS: FloatArray
    Sy: FloatArray
    uS: FloatArray
    uu: FloatArray
    uy: FloatArray
    yy: FloatArray
    wS: FloatArray
    wu: FloatArray
    wy: FloatArray
    R0_precision: FloatArray
    """ww and the weight of R0's prior; 0, as wS, wu and wy are, where R0 is the start level."""
    rho: FloatArray
    log_weight: FloatArray
    """Of the integral over the levels: `log_prior`, and what integrating R0 leaves."""

    @staticmethod
    def joined(parts: Sequence[Levels]) -> Levels:
        """The levels of all courses of `parts`, which have the same points."""
        if len(parts) == 1:
            return parts[0]
        arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts], axis=1) for name in _ARRAYS}
        return replace(parts[0], **arrays)

    def without_R0(self, *, wS: FloatArray, wu: FloatArray, wy: FloatArray, ww: FloatArray) -> Levels:
        """With R0 before an early phase projected out."""
        centre, precision = self.observed.R0_centre, ww + self.observed.R0_weight
        Sy, uy, yy = self.Sy - centre * wS, self.uy - centre * wu, self.yy - centre * (2.0 * wy - centre * ww)
        wy = wy - centre * ww
        return replace(
            self,
            SS=self.SS - wS**2 / precision,
            Sy=Sy - wS * wy / precision,
            uS=self.uS - wu * wS / precision,
            uu=np.maximum(self.uu - wu**2 / precision, _TINY),
            uy=uy - wu * wy / precision,
            yy=yy - wy**2 / precision,
            wS=wS,
            wu=wu,
            wy=wy,
            R0_precision=precision,
            log_weight=self.log_weight - 0.5 * np.log(1.0 + ww / self.observed.R0_weight),
        )

    def pairs(self, chosen: NDArray[np.intp]) -> Levels:
        """Those of some pairs of correlation and course, numbered along the courses first: arrays (p,)."""
        return replace(self, **{name: getattr(self, name).take(chosen) for name in _ARRAYS})

    def squares(self, start: FloatArray, A: FloatArray) -> FloatArray:
        """Q, the weighted sum of squared residuals."""
        of_A = self.yy + A * (A * self.SS - 2.0 * self.Sy)
        return np.maximum(of_A + start * (start * self.uu + 2.0 * (A * self.uS - self.uy)), 0.0)

    def best_start(self, A: FloatArray) -> FloatArray:
        """The start level of least squares given A, wherever it lies; or the fixed one."""
        if self.observed.fixed_start is not None:
            return np.full_like(A, self.observed.fixed_start)
        best: FloatArray = (self.uy - self.uS * A) / self.uu
        return best

    @property
    def has_free_start(self) -> bool:
        """Whether the start level is unknown and leaves a trace in the points."""
        return self.observed.fixed_start is None and bool((self.uu > _LEAST_TRACE).any())

    def least_squares(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Least Q with floor <= start <= A <= 1, and the start and A where it lies."""
        A = self._candidates(self._tops()[0])
        squares, start = self._nearest(A)
        least = squares.argmin(axis=0)[np.newaxis]
        squares, start, A = (np.take_along_axis(array, least, axis=0)[0] for array in (squares, start, A))
        return squares, start, A

    def outline(self) -> FloatArray:
        """About the log likelihood of each correlation and course, by Laplace's method: right to a factor, at a tenth of the cost."""
        dof, floor = self.observed.dof, self.observed.floor
        tops, curvature = self._tops()
        near = self._candidates(tops)
        squares = self.observed.prior_squares + self._nearest(near)[0].min(axis=0)
        spread = 2.0 * np.pi / dof * squares
        share = np.minimum(spread / curvature[0], 1.0)
        if self.observed.fixed_start is None:
            share = share * np.minimum(spread / (self.uu * np.maximum(near[0] - floor, _TINY) ** 2), 1.0)
        outline: FloatArray = self.log_weight - 0.5 * dof * np.log(squares) + 0.5 * np.log(share)
        return outline

    def nodes(self, number: int) -> Nodes:
        """The likelihood as a function of A."""
        low, high = self._stretch()
        low = np.minimum(low, 1.0 - _TINY)
        spacing = np.maximum(high - low, _TINY) / number
        A = low + spacing * (np.arange(number) + 0.5)[:, np.newaxis]
        return Nodes.of(A, spacing, self.log_weight + self._log_marginal(A))

    def draw_start(self, A: FloatArray, uniform: FloatArray) -> FloatArray:
        """The start level at `uniform` (0 .. 1) of its distribution given A."""
        best = self.best_start(A)
        if self.observed.fixed_start is not None:
            return best
        dof, floor = self.observed.dof - 1.0, self.observed.floor
        width = self._start_width(best, A)
        low, high = (_normal_of_t((edge - best) / width, dof) for edge in (floor, A))
        side = -np.copysign(1.0, low + high)
        low, high = np.minimum(side * low, side * high), np.maximum(side * low, side * high)
        below = ndtr(low)
        deviate = _within(ndtri(below + uniform * (ndtr(high) - below)), low, high)
        return _within(best + width * _t_of_normal(side * deviate, dof), floor, A)

    def draw_R0(self, start: FloatArray, A: FloatArray, noise_sd: FloatArray, deviate: FloatArray) -> FloatArray:
        """R0 before an early phase, so many standard deviations off its mean given all else, cut to 0 .. 1; or the one given."""
        best = self.observed.R0_centre + (self.wy - self.wu * start - self.wS * A) / self.R0_precision
        return _within(best + noise_sd * np.sqrt((1.0 - self.rho**2) / self.R0_precision) * deviate, 0.0, 1.0)

    def draw_noise_sd(self, start: FloatArray, A: FloatArray, deviate: FloatArray) -> FloatArray:
        """The standard deviation of a residual of relative variance 1 given the levels, at a normal deviate of its chi-square."""
        # A chi-square is close to the cube of a normal deviate: Wilson and Hilferty (1931).
        dof = self.observed.dof
        spread = 2.0 / (9.0 * dof)
        chi_square = dof * np.maximum(1.0 - spread - math.sqrt(spread) * deviate, _TINY) ** 3
        innovation_variance = (self.observed.prior_squares + self.squares(start, A)) / chi_square
        sd: FloatArray = np.sqrt(innovation_variance / (1.0 - self.rho**2))
        return sd

    def _peak(self) -> tuple[FloatArray, FloatArray]:
        """A of least squares, wherever it lies, and the curvature of Q there, the start level following A."""
        if self.observed.fixed_start is not None:
            curvature = np.maximum(self.SS, _TINY)
            return (self.Sy - self.observed.fixed_start * self.uS) / curvature, curvature
        curvature = np.maximum(self.SS - self.uS**2 / self.uu, _TINY)
        return (self.Sy - self.uS * self.uy / self.uu) / curvature, curvature

    def _tops(self) -> tuple[FloatArray, FloatArray]:
        """A of least squares at large, on start = floor and on start = A, wherever it lies, and the curvature of Q there: (3, ...)."""
        peak, curvature = self._peak()
        at_floor, of_level = np.maximum(self.SS, _TINY), np.maximum(self.SS + 2.0 * self.uS + self.uu, _TINY)
        A = np.array([peak, (self.Sy - self.observed.floor * self.uS) / at_floor, (self.Sy + self.uy) / of_level])
        return A, np.array([curvature, at_floor, of_level])

    def _nearest(self, A: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The least Q for a start level of floor .. A, and that level."""
        start = _within(self.best_start(A), self.observed.floor, A)
        return self.squares(start, A), start

    def _candidates(self, tops: FloatArray) -> FloatArray:
        """(4, ...) values of A at one of which the least squares under floor <= start <= A <= 1 lie."""
        return _within(np.concatenate([tops, np.ones((1, *self.SS.shape))]), self.observed.floor, 1.0)

    def _stretch(self) -> tuple[FloatArray, FloatArray]:
        """Least and largest A for which some start level keeps the likelihood above exp(-7) of its peak.

        That set is convex: it ends where Q reaches its limit at large or on an edge, or at a corner.
        """
        prior_squares, floor = self.observed.prior_squares, self.observed.floor
        tops, curvature = self._tops()
        near = self._candidates(tops)
        least = self._nearest(near)[0].min(axis=0)
        limit = (prior_squares + least) * math.exp(2.0 * _LOG_DROP / self.observed.dof) - prior_squares
        start = np.array([self.best_start(tops[0]), np.full_like(least, floor), tops[2]])
        reach = np.sqrt(np.maximum(limit - self.squares(start, tops), 0.0) / curvature)
        ends = np.concatenate([near, _within(tops - reach, floor, 1.0), _within(tops + reach, floor, 1.0)])
        is_inside = self._nearest(ends)[0] <= limit + _ROUNDING * self.yy
        return np.where(is_inside, ends, 1.0).min(axis=0), np.where(is_inside, ends, floor).max(axis=0)

    def _start_width(self, best: FloatArray, A: FloatArray) -> FloatArray:
        """Scale of the Student t of the start level given A, around its best."""
        width: FloatArray = np.sqrt((self.observed.prior_squares + self.squares(best, A)) / ((self.observed.dof - 1.0) * self.uu))
        return width

    def _log_marginal(self, A: FloatArray) -> FloatArray:
        """Log likelihood of A, the noise and a free start level integrated."""
        best, dof = self.best_start(A), self.observed.dof
        log_squares = np.log(self.observed.prior_squares + self.squares(best, A))
        if self.observed.fixed_start is not None:
            return -0.5 * dof * log_squares
        width = self._start_width(best, A)
        floor = self.observed.floor
        mass = _normal_mass(_normal_of_t((floor - best) / width, dof - 1.0), _normal_of_t((A - best) / width, dof - 1.0))
        log_norm = 0.5 * np.log(np.pi / self.uu) + gammaln(0.5 * (dof - 1.0)) - gammaln(0.5 * dof)
        log_marginal: FloatArray = log_norm - 0.5 * (dof - 1.0) * log_squares + np.log(mass / (A - floor))
        return log_marginal


def log_sum(log_values: FloatArray) -> FloatArray:
    """The log of a sum over the first axis; SciPy's takes several times as long for few numbers."""
    largest = log_values.max(axis=0)
    total: FloatArray = largest + np.log(np.exp(log_values - largest).sum(axis=0))
    return total


def _within(x: FloatArray, low: float | FloatArray, high: float | FloatArray) -> FloatArray:
    """x cut to low .. high; np.clip takes several times as long for few numbers."""
    cut: FloatArray = np.minimum(np.maximum(x, low), high)
    return cut


def _inner(a: FloatArray, b: FloatArray) -> FloatArray:
    """(r, m) inner products of the rows of a and b (m, n) under the AR(1) precision for each correlation."""
    equal = np.einsum("ij,ij->i", a, b)
    neighbours = np.einsum("ij,ij->i", a[:, 1:], b[:, :-1]) + np.einsum("ij,ij->i", a[:, :-1], b[:, 1:])
    ends = a[:, 0] * b[:, 0] + a[:, -1] * b[:, -1]
    inner: FloatArray = _PRECISION @ np.array([equal, neighbours, ends])
    return inner


def _times_precision(x: FloatArray) -> FloatArray:
    """(r, n) the AR(1) precision for each correlation times x (n,)."""
    neighbours, ends = np.zeros_like(x), np.zeros_like(x)
    neighbours[1:] += x[:-1]
    neighbours[:-1] += x[1:]
    ends[[0, -1]] = x[[0, -1]]
    product: FloatArray = _PRECISION @ np.stack([x, neighbours, ends])
    return product


def _normal_of_t(t: FloatArray, dof: float) -> FloatArray:
    """The normal deviate of the same probability as a Student t: Wallace (1959), absolute error of probability below .001."""
    return np.copysign((8.0 * dof + 1.0) / (8.0 * dof + 3.0) * np.sqrt(dof * np.log(1.0 + t * t / dof)), t)


def _t_of_normal(deviate: FloatArray, dof: float) -> FloatArray:
    """The inverse of `_normal_of_t`."""
    scaled = deviate * (8.0 * dof + 3.0) / (8.0 * dof + 1.0)
    return np.copysign(np.sqrt(dof * np.expm1(scaled * scaled / dof)), deviate)


def _normal_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """Probability of low .. high under the standard normal, taken in the lower tail, where it is exact."""
    side = -np.copysign(1.0, low + high)
    return np.maximum(np.abs(ndtr(side * high) - ndtr(side * low)), _LEAST_PROBABILITY)
