"""The posterior of a law given points, by deterministic quadrature: no start values, no local minima, no random numbers.

With the progress S of a law fixed, the mean start + (A - start) S is linear in its two levels. `levels.py` integrates
those and the noise in closed form; what is left, one or two logarithms, is covered by boxes (`cells.py`). The result is
handed on as draws that a fixed sequence spreads evenly through the posterior: the quantiles of any function of a law
are the quantiles of one array.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from scalerl.curves.cells import refined
from scalerl.curves.laws import Law, Parameter
from scalerl.curves.levels import Levels
from scalerl.curves.points import Points
from scalerl.curves.result import Band
from scalerl.records.curve import FloatArray

NUM_DRAWS = 4096
_NUMBERS_AT_ONCE = 1_000_000
"""Progress of cells at points that is held in memory together: 8 MB for each array."""
_COLUMNS_AT_ONCE = 256
"""Amounts of compute whose draws are held in memory together: 8 MB for each array."""
_NEGLIGIBLE = 1e-5
"""Share of the heaviest node below which a node of A gets no draw anyway."""


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
class Posterior:
    """N evenly weighted draws of everything unknown; levels and noise in units of `points.reward`."""

    law: Law
    points: Points
    """Those that entered: a law that diverges at zero compute leaves points there out."""
    parameters: tuple[Parameter, ...]
    log_parameters: FloatArray
    """(d, N) logarithms of `parameters`, compute relative to the first point."""
    start: FloatArray
    """(N,)"""
    A: FloatArray
    """(N,)"""
    noise: FloatArray
    """(N,) residual of one new evaluation."""
    log_evidence: float
    """Log marginal likelihood, comparable between laws on the same points."""
    optimum: Optimum
    num_free: int
    """Free parameters of the law that leave a trace in the points."""

    def progress(self, log_compute: FloatArray) -> FloatArray:
        """(N, k) S at `log_compute` (k,)."""
        return self.law.progress(log_compute, *self.log_parameters[..., np.newaxis])

    def mean(self, log_compute: FloatArray) -> FloatArray:
        """(N, k) the law's mean at `log_compute` (k,), in units of `points.reward`."""
        start, A = self.start[:, np.newaxis], self.A[:, np.newaxis]
        mean: FloatArray = start + (A - start) * self.progress(log_compute)
        return mean

    def expected(self, log_compute: FloatArray) -> FloatArray:
        """(k,) the posterior mean of the law's mean at `log_compute` (k,)."""
        parts = range(0, log_compute.size, _COLUMNS_AT_ONCE)
        expected: FloatArray = np.concatenate([self.mean(log_compute[first : first + _COLUMNS_AT_ONCE]).mean(axis=0) for first in parts])
        return expected

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


def fixed_start(law: Law, points: Points) -> float | None:
    """The start level that the user gave, if this law has it."""
    return points.R0 if law.start == "R0" else None


def posterior(law: Law, points: Points) -> Posterior:
    """The posterior of `law` given `points`, which hold two different amounts of positive compute.

    Poor data raise nothing: a posterior as wide as the prior says what they are worth.
    """
    if not law.reaches_zero:
        points = points.positive()
    parameters = law.parameters(points.log_last)

    def levels_at(log_parameters: FloatArray) -> Levels:
        num_parts = math.ceil(len(log_parameters) * len(points) / _NUMBERS_AT_ONCE)
        parts = [
            Levels.of(points, law.progress(points.log_compute, *part.T[..., np.newaxis]), fixed_start=fixed_start(law, points))
            for part in np.array_split(log_parameters, max(num_parts, 1))
        ]
        return Levels.joined(parts)

    cells = refined(parameters, lambda centre: levels_at(centre).nodes().log_likelihood)
    log_evidence = float(np.logaddexp.reduce(cells.log_mass))
    cells = cells.at(cells.log_mass > log_evidence + np.log(_NEGLIGIBLE))
    levels = levels_at(cells.centre)
    nodes = levels.nodes()

    share = np.exp(cells.log_prior[:, np.newaxis, np.newaxis] + nodes.log_share - log_evidence)
    cell, rho, node = np.nonzero(share > _NEGLIGIBLE * share.max())
    order = np.argsort(nodes.A[cell, rho, node], kind="stable")
    heaped = np.cumsum(share[cell, rho, node][order])
    position = (np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS * heaped[-1]
    drawn = order[np.minimum(np.searchsorted(heaped, position), order.size - 1)]
    cell, rho, node = cell[drawn], rho[drawn], node[drawn]

    in_node, in_start, in_sd, in_noise, *in_cell = _spread(4 + len(parameters))
    A = nodes.A[cell, rho, node] + (in_node - 0.5) * nodes.spacing[cell, rho, 0]
    chosen = levels.at(cell, rho)
    start = chosen.draw_start(A, in_start)
    sd = chosen.draw_noise_sd(start, A, in_sd) * np.sqrt(points.variance[-1])
    offset = 2.0 * np.array(in_cell).reshape(len(parameters), NUM_DRAWS) - 1.0
    return Posterior(
        law=law,
        points=points,
        parameters=parameters,
        log_parameters=cells.centre[cell].T + cells.half[cell].T * offset,
        start=start,
        A=A,
        noise=sd * ndtri(in_noise),
        log_evidence=log_evidence,
        optimum=_optimum(levels, cells.centre),
        num_free=len(parameters) + 1 + levels.has_free_start,
    )


def _optimum(levels: Levels, centres: FloatArray) -> Optimum:
    """The best of the cells' centres (m, d), residuals taken as uncorrelated."""
    squares, start, A = (column[:, 0, 0] for column in levels.least_squares())
    best = int(squares.argmin())
    return Optimum(float(squares[best]), float(start[best]), float(A[best]), centres[best])


@lru_cache(maxsize=8)
def _spread(num_axes: int) -> FloatArray:
    """(num_axes, N) numbers in 0 .. 1 that fill the cube evenly: the additive recurrence of Roberts (2018).

    Its steps are powers of 1/g, where g^(num_axes + 1) = g + 1.
    """
    g = 2.0
    for _ in range(40):
        g = (1.0 + g) ** (1.0 / (num_axes + 1.0))
    steps = g ** -np.arange(1.0, num_axes + 1.0)
    spread: FloatArray = (0.5 + steps[:, np.newaxis] * np.arange(NUM_DRAWS)) % 1.0
    return spread
