"""The posterior of a law given points, by deterministic quadrature: no start values, no local minima, no random numbers.

With the progress S of a law fixed, the mean start + (A - start) S is linear in its two levels. `levels.py` integrates
those and the noise in closed form; what is left, one or two logarithms, is covered by boxes (`cells.py`). The result is
handed on as draws that a fixed sequence spreads evenly through the posterior: the quantiles of any function of a law
are the quantiles of one array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import ndtri

from scalerl.curves.cells import Cells, lattice, refined
from scalerl.curves.laws import Law, Parameter
from scalerl.curves.levels import Levels, Nodes, Observed, log_sum
from scalerl.curves.points import Points
from scalerl.curves.regimes import Regime, regimes_of
from scalerl.curves.result import Band
from scalerl.curves.sequence import evenly_spread
from scalerl.records.curve import FloatArray

NUM_DRAWS = 4096
_NUMBERS_AT_ONCE = 100_000
"""Progress of cells at points that is worked on together: .8 MB for each array stays near the processor."""
_COLUMNS_AT_ONCE = 256
"""Amounts of compute whose draws are held in memory together: 8 MB for each array."""
_NUM_NODES = 5
"""Values of A for each cell and correlation: 1.5 standard deviations apart, the midpoint rule is right to 1e-3."""
_TOLERANCE = 1e-14
"""Of a polished optimum: as fine as doubles permit."""
_NEGLIGIBLE = 1e-3
"""Share of the heaviest cell and correlation below which others are left out."""
_NUM_ZOOMS = {0: 0, 1: 0, 2: 0, 3: 2}
"""Lattices around the best cell, by the number of parameters: cells of fewer are fine enough."""
_ZOOM = 5
"""Points along each axis of such a lattice."""
_TIE = 1e-12
"""Between values of A that count as equal."""
_EVERY = 16
"""Draws apart that are enough for a mean."""


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The law's best point by least squares under 0 <= start <= A <= 1, to the resolution of the cells."""

    squares: float
    """Sum of squares, weighted by relative variances."""
    start: float
    A: float
    log_parameters: FloatArray
    """(d,)"""


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """N evenly weighted draws of everything unknown under one regime; levels and noise in units of `points.reward`, arrays (N,)."""

    regime: Regime
    log_parameters: FloatArray
    """(N, d) logarithms of the regime's parameters, compute relative to the first point."""
    R0: FloatArray
    """The level at no compute: without an early phase, the start level itself."""
    start: FloatArray
    A: FloatArray
    noise: FloatArray
    """Residual of one new evaluation."""

    def mean(self, log_compute: FloatArray) -> FloatArray:
        """(N, k) the mean at `log_compute` (k,)."""
        course = self.regime.course(log_compute, self.log_parameters)
        start, A = self.start[:, np.newaxis], self.A[:, np.newaxis]
        if not self.regime.has_early_phase:
            return start + (A - start) * course.S
        R0 = self.R0[:, np.newaxis]
        return R0 + (start - R0) * course.E + (A - start) * course.S

    @property
    def thinned(self) -> Draws:
        """Every sixteenth: draws are sorted by A, so that those still stand for all."""
        kept = slice(_EVERY // 2, None, _EVERY)
        return Draws(self.regime, self.log_parameters[kept], self.R0[kept], self.start[kept], self.A[kept], self.noise[kept])


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The posterior under one regime, at nodes: values of A with each of p likely pairs of a cell and a correlation."""

    regime: Regime
    cells: Cells
    cell_of: NDArray[np.intp]
    """(p,)"""
    levels: Levels
    """(p,) what the points say of the levels in that cell."""
    nodes: Nodes
    """(k, p) of A, whose shares are those of the posterior mass without the regime's prior probability."""
    log_evidence: float
    """Log marginal likelihood, without the regime's prior probability."""
    optimum: Optimum

    @property
    def log_mass(self) -> float:
        """Log of the regime's share of the posterior, up to a constant of all regimes."""
        return self.regime.log_prior + self.log_evidence

    @property
    def num_free(self) -> int:
        """Free parameters that leave a trace in the points."""
        return len(self.regime.parameters) + 1 + self.levels.has_free_start + (not math.isinf(self.levels.observed.R0_weight))

    def polished(self, points: Points) -> Optimum:
        """The optimum to the precision of the machine: the levels follow the shape (variable projection, Golub and Pereyra 1973)."""
        if not self.regime.parameters:
            return self.optimum
        low, high = np.array([(parameter.log_low, parameter.log_high) for parameter in self.regime.parameters]).T

        def at(log_parameters: FloatArray) -> Optimum:
            course = self.regime.course(points.log_compute, log_parameters[np.newaxis])
            levels = self.levels.observed.levels(course)
            squares, start, A = (float(column[0, 0]) for column in levels.least_squares())
            return Optimum(squares, start, A, log_parameters)

        def residuals(log_parameters: FloatArray) -> FloatArray:
            best = at(log_parameters)
            S = self.regime.course(points.log_compute, log_parameters[np.newaxis]).S[0]
            off: FloatArray = (best.start + (best.A - best.start) * S - points.reward) / np.sqrt(points.variance)
            return off

        solution = least_squares(
            residuals,
            self.optimum.log_parameters,
            jac="3-point",
            bounds=(low, high),
            ftol=_TOLERANCE,
            xtol=_TOLERANCE,
            gtol=_TOLERANCE,
        )
        return at(solution.x)

    def draws(self, number: int, *, last_variance: float) -> Draws:
        """So many draws, spread evenly; the noise is that of a point of relative variance `last_variance`."""
        share = np.exp(self.nodes.log_share - self.log_evidence).ravel()
        # Rounding, and with it the unit of the rewards, must not turn the order of equal A.
        order = np.argsort(self.nodes.A.ravel() + _TIE * np.arange(share.size))
        heaped = np.cumsum(share[order])
        position = (np.arange(number) + 0.5) / number * heaped[-1]
        drawn = order[np.searchsorted(heaped, position)]
        pair = drawn % self.cell_of.size
        levels, cell = self.levels.pairs(pair), self.cell_of[pair]

        num_axes = self.cells.centre.shape[1]
        in_node, in_start, *in_cell = evenly_spread(5 + num_axes, NUM_DRAWS)[3:, :number]
        of_sd, of_noise, of_R0 = _normal_deviates(5 + num_axes)[:, :number]
        A = self.nodes.within(drawn, in_node)
        start = levels.draw_start(A, in_start)
        sd = levels.draw_noise_sd(start, A, of_sd)
        offset = 2.0 * np.array(in_cell).reshape(num_axes, number).T - 1.0
        return Draws(
            regime=self.regime,
            log_parameters=self.cells.centre[cell] + self.cells.half[cell] * offset,
            R0=levels.draw_R0(start, A, sd, of_R0) if self.regime.has_early_phase else start,
            start=start,
            A=A,
            noise=sd * math.sqrt(last_variance) * of_noise,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """What is known of a law given points: draws of each regime in proportion to its probability."""

    law: Law
    points: Points
    """Those that entered: a law that diverges at zero compute leaves points there out."""
    found: tuple[Found, ...]
    """One regime each, one without an early phase first."""
    parts: tuple[Draws, ...]
    """Of the regimes that have a share of the draws; N in all."""

    @property
    def log_evidence(self) -> float:
        """Log marginal likelihood, comparable between laws on the same points."""
        return float(np.logaddexp.reduce([one.log_mass for one in self.found]))

    @property
    def plain(self) -> Found:
        """The law without an early phase."""
        return self.found[0]

    @property
    def early_phase(self) -> float:
        """The probability of an early phase."""
        return sum(part.A.size for part in self.parts if part.regime.has_early_phase) / self.A.size

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The law's own nonlinear parameters."""
        return self.plain.regime.parameters

    @property
    def log_parameters(self) -> FloatArray:
        """(d, N) logarithms of the law's own parameters, compute relative to the first point."""
        return np.concatenate([part.log_parameters[:, : len(self.parameters)] for part in self.parts]).T

    @property
    def R0(self) -> FloatArray:
        """(N,)"""
        return np.concatenate([part.R0 for part in self.parts])

    @property
    def start(self) -> FloatArray:
        """(N,) the level that the law itself climbs from."""
        return np.concatenate([part.start for part in self.parts])

    @property
    def A(self) -> FloatArray:
        """(N,)"""
        return np.concatenate([part.A for part in self.parts])

    @property
    def noise(self) -> FloatArray:
        """(N,) residual of one new evaluation."""
        return np.concatenate([part.noise for part in self.parts])

    def progress(self, log_compute: FloatArray) -> FloatArray:
        """(N, k) S at `log_compute` (k,)."""
        courses = [(part, part.regime.course(log_compute, part.log_parameters)) for part in self.parts]
        return np.concatenate([np.broadcast_to(course.S, (part.A.size, log_compute.size)) for part, course in courses])

    def mean(self, log_compute: FloatArray) -> FloatArray:
        """(N, k) the mean at `log_compute` (k,), in units of `points.reward`."""
        return np.concatenate([part.mean(log_compute) for part in self.parts])

    def expected(self, log_compute: FloatArray) -> FloatArray:
        """(k,) the posterior mean of the mean at `log_compute` (k,)."""
        expected: FloatArray = self.thinned.mean(log_compute).mean(axis=0)
        return expected

    @property
    def thinned(self) -> Posterior:
        """With a sixteenth of the draws, for what needs no quantiles."""
        return replace(self, parts=tuple(part.thinned for part in self.parts))

    def band(self, compute: FloatArray, *, level: float) -> Band:
        """The central interval of one new evaluation at each of `compute` (k,), in the curve's units."""
        tail = 0.5 * (1.0 - level)
        middle, low, high = np.empty_like(compute), np.empty_like(compute), np.empty_like(compute)
        for first in range(0, compute.size, _COLUMNS_AT_ONCE):
            part = slice(first, first + _COLUMNS_AT_ONCE)
            mean = self.mean(self.points.log_of(compute[part]))
            middle[part] = mean.mean(axis=0)
            low[part], high[part] = np.quantile(mean + self.noise[:, np.newaxis], [tail, 1.0 - tail], axis=0)
        to_reward = self.points.to_reward
        return Band(compute, to_reward(middle), to_reward(low), to_reward(high))


def posterior(law: Law, points: Points, *, num_draws: int = NUM_DRAWS) -> Posterior:
    """The posterior of `law` given `points`, which hold two different amounts of positive compute.

    Poor data raise nothing: a posterior as wide as the prior says what they are worth. Fewer draws, up to NUM_DRAWS, cost less.
    """
    return _over(regimes_of(law, points.log_last), points, num_draws=num_draws)


def plain_posterior(law: Law, points: Points, *, num_draws: int = NUM_DRAWS) -> Posterior:
    """As `posterior`, for points known to have no early phase."""
    plain, *_ = regimes_of(law, points.log_last)
    return _over((replace(plain, log_prior=0.0),), points, num_draws=num_draws)


def _over(regimes: tuple[Regime, ...], points: Points, *, num_draws: int) -> Posterior:
    """The posterior over `regimes`, the first of which has no early phase."""
    law = regimes[0].law
    if not law.reaches_zero:
        points = points.positive()
    found: list[Found] = []
    for regime in regimes:
        log_elsewhere = np.logaddexp.reduce([one.log_mass for one in found]) - regime.log_prior
        found.append(_under(regime, points, log_elsewhere=float(log_elsewhere), num_draws=num_draws))
    share = np.exp([one.log_mass - max(other.log_mass for other in found) for one in found])
    numbers = np.diff(np.rint(np.cumsum(share) / share.sum() * num_draws).astype(int), prepend=0)
    last_variance = float(points.variance[-1])
    parts = tuple(one.draws(int(number), last_variance=last_variance) for one, number in zip(found, numbers, strict=True) if number)
    return Posterior(law, points, tuple(found), parts)


def _under(regime: Regime, points: Points, *, log_elsewhere: float, num_draws: int) -> Found:
    """The posterior under `regime`, as fine as its share beside the mass of other regimes needs."""
    given_R0 = points.R0 if regime.law.start == "R0" else None
    observed = Observed.of(points, given_R0=given_R0, has_early_phase=regime.has_early_phase)

    def levels_at(log_parameters: FloatArray) -> Levels:
        step = max(_NUMBERS_AT_ONCE // len(points), 1)
        parts = [log_parameters[first : first + step] for first in range(0, max(len(log_parameters), 1), step)]
        return Levels.joined([observed.levels(regime.course(points.log_compute, part)) for part in parts])

    cells = refined(regime.parameters, levels_at, is_possible=regime.is_possible, log_elsewhere=log_elsewhere, num_draws=num_draws)
    log_mass = cells.log_prior + cells.outline
    likely = np.flatnonzero(log_mass > log_mass.max() + math.log(_NEGLIGIBLE))
    cell_of, levels = likely % len(cells.centre), cells.levels.pairs(likely)
    nodes = levels.nodes(_NUM_NODES)
    nodes = replace(nodes, log_share=nodes.log_share + cells.log_prior[cell_of])
    return Found(regime, cells, cell_of, levels, nodes, float(log_sum(nodes.log_share.ravel())), _optimum(cells, levels_at))


def _optimum(cells: Cells, levels_at: Callable[[FloatArray], Levels]) -> Optimum:
    """The best of the cells' centres and of finer lattices around it, residuals taken as uncorrelated."""
    best, cell = _best(cells.centre, cells.levels)
    half = cells.half[cell]
    for _ in range(_NUM_ZOOMS[half.size]):
        offsets, share = lattice((_ZOOM,) * half.size)
        around = best.log_parameters + offsets * half
        best, half = min(best, _best(around, levels_at(around))[0], key=lambda one: one.squares), half * share
    return best


def _best(log_parameters: FloatArray, levels: Levels) -> tuple[Optimum, int]:
    """The best of some choices of the parameters (m, d), and which it is."""
    uncorrelated = levels.pairs(np.arange(len(log_parameters)))
    squares, start, A = uncorrelated.least_squares()
    best = int(squares.argmin())
    return Optimum(float(squares[best]), float(start[best]), float(A[best]), log_parameters[best]), best


@lru_cache
def _normal_deviates(num_axes: int) -> FloatArray:
    """(3, N) of the first three axes of a cube that draws fill evenly."""
    deviates: FloatArray = ndtri(evenly_spread(num_axes, NUM_DRAWS)[:3])
    return deviates
