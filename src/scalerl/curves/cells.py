"""Boxes over the logarithms of a law's parameters, halved where the posterior mass is.

They tile the whole range of the prior, so no mode can be missed by a start value, and nothing is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import UsageError
from scalerl.curves.laws import Parameter
from scalerl.curves.levels import Levels, log_sum
from scalerl.records.curve import FloatArray

_FIRST_GRID = {0: (), 1: (256,), 2: (24, 12), 3: (24, 12, 6)}
"""Boxes along each parameter at first, in the law's order, by the number of parameters."""
_FIRST_POINTS, _MORE_POINTS = 6.0, 3.0
"""A coarse grid steps over a narrow peak, but a softened likelihood shows its flanks: the first pass raises it to a power
that leaves it worth so many points, each further one to so many times that power ..."""
_POWER, _NUM_PASSES = 0.6, 3
"""... up to this one, below 1 for finer boxes towards the tails, in so many passes."""
_MOST_DRAWS = {1: 120.0, 2: 24.0, 3: 12.0}
"""By the number of parameters: a box with more of the draws is halved along every axis until evenly spread ones would be no more ..."""
_MOST_PARTS = 64
"""... but falls into no more parts than this in one pass."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """m boxes in d dimensions."""

    centre: FloatArray
    """(m, d)"""
    half: FloatArray
    """(m, d) half of each edge."""
    log_prior: FloatArray
    """(m,) log of each box's prior mass."""
    levels: Levels
    """(r, m) of the course at the centre."""
    outline: FloatArray
    """(r, m) about the log likelihood of that course with each correlation."""
    log_likelihood: FloatArray
    """(m,) about that of the course."""

    def log_share(self, power: float) -> FloatArray:
        """(m,) log of each box's share of the prior mass times the likelihood to a power."""
        log_mass = self.log_prior + power * self.log_likelihood
        log_share: FloatArray = log_mass - log_sum(log_mass)
        return log_share

    def with_parts(self, heavy: NDArray[np.bool_], parts: Cells) -> Cells:
        """With `parts` in place of the `heavy` ones, which stay as boxes without mass."""
        return Cells(
            np.concatenate([self.centre, parts.centre]),
            np.concatenate([self.half, parts.half]),
            np.concatenate([np.where(heavy, -np.inf, self.log_prior), parts.log_prior]),
            Levels.joined([self.levels, parts.levels]),
            np.concatenate([self.outline, parts.outline], axis=1),
            np.concatenate([self.log_likelihood, parts.log_likelihood]),
        )


def refined(
    parameters: Sequence[Parameter],
    levels_at: Callable[[FloatArray], Levels],
    *,
    is_possible: Callable[[FloatArray], NDArray[np.bool_]],
    log_elsewhere: float,
    num_draws: int,
) -> Cells:
    """Boxes over the prior's range, fine enough for `num_draws` draws that they share with a mass elsewhere.

    `levels_at` and `is_possible` map centres (m, d) to levels (r, m) and (m,); the prior is cut to where centres are
    possible. `log_elsewhere` is the log of that mass. A law without parameters has one box in no dimensions.
    """

    def measured(centre: FloatArray, half: FloatArray, log_volume: float = 0.0) -> Cells:
        possible = is_possible(centre)
        centre, half = centre[possible], half[possible]
        log_prior = np.log(2.0 * half).sum(axis=1)
        for axis, parameter in enumerate(parameters):
            log_prior = log_prior + parameter.log_prior(centre[:, axis])
        levels = levels_at(centre)
        outline = levels.outline()
        return Cells(centre, half, log_prior - log_volume, levels, outline, log_sum(outline))

    def divided(cells: Cells, log_share: FloatArray) -> Cells:
        num_halvings = _num_halvings(num_draws * np.exp(log_share), num_axes=len(parameters))
        if not num_halvings.any():
            return cells
        return cells.with_parts(num_halvings > 0, measured(*_parts(cells, num_halvings), log_volume))

    cells = measured(*_tiling(parameters))
    log_volume = float(log_sum(cells.log_prior))
    cells = replace(cells, log_prior=cells.log_prior - log_volume)
    if not parameters:
        return cells
    for power in _softer_powers(cells.levels.observed.dof):
        cells = divided(cells, cells.log_share(power))
    for _ in range(_NUM_PASSES):
        log_mass = log_sum(cells.log_prior + cells.log_likelihood)
        cells = divided(cells, cells.log_share(_POWER) + log_mass - np.logaddexp(log_mass, log_elsewhere))
    return cells


def _softer_powers(num_points: float) -> list[float]:
    """Those below _POWER."""
    number = math.ceil(math.log(_POWER * num_points / _FIRST_POINTS) / math.log(_MORE_POINTS))
    return [_FIRST_POINTS / num_points * _MORE_POINTS**one for one in range(number)]


def _num_halvings(draws: FloatArray, *, num_axes: int) -> NDArray[np.intp]:
    """(m,) how often each axis of a box with so many draws is to be halved."""
    enough = np.ceil(np.log2(np.maximum(draws / _MOST_DRAWS[num_axes], 1.0)) / num_axes)
    return np.minimum(enough, math.log2(_MOST_PARTS) // num_axes).astype(np.intp)


def _tiling(parameters: Sequence[Parameter]) -> tuple[FloatArray, FloatArray]:
    """Centres and half edges of the first grid."""
    if len(parameters) not in _FIRST_GRID:
        raise UsageError(
            f"{len(parameters)} nonlinear parameters are more than boxes can cover",
            where=", ".join(parameter.name for parameter in parameters),
            remedy=f"give the law at most {max(_FIRST_GRID)}, the c of an early phase included",
        )
    low, high = np.array([(parameter.log_low, parameter.log_high) for parameter in parameters]).reshape(-1, 2).T
    offsets, half = lattice(_FIRST_GRID[len(parameters)])
    half = np.broadcast_to(half * 0.5 * (high - low), offsets.shape)
    return 0.5 * (low + high) + offsets * 0.5 * (high - low), half


def lattice(shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Centres (m, d) and half edges (d,) of so many boxes along each axis that tile the cube from -1 to 1."""
    numbers = np.array(shape, dtype=np.float64)
    return (2.0 * np.indices(shape).reshape(len(shape), math.prod(shape)).T + 1.0) / numbers - 1.0, 1.0 / numbers


def _parts(cells: Cells, num_halvings: NDArray[np.intp]) -> tuple[FloatArray, FloatArray]:
    """Centres and half edges of the boxes into which each of `cells` falls when its axes are halved so often (m,), if at all."""
    num_axes = cells.centre.shape[1]
    centres, halves = [], []
    for number in range(1, int(num_halvings.max()) + 1):
        offsets, share = lattice((2**number,) * num_axes)
        half = cells.half[num_halvings == number, np.newaxis]
        centre = cells.centre[num_halvings == number, np.newaxis] + offsets * half
        centres.append(centre.reshape(-1, num_axes))
        halves.append(np.broadcast_to(half * share, centre.shape).reshape(-1, num_axes))
    return np.concatenate(centres), np.concatenate(halves)
