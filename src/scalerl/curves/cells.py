"""Boxes over the logarithms of a law's parameters, halved where the posterior mass is.

They tile the whole range of the prior, so no mode can be missed by a start value, and nothing is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scalerl.curves.laws import Parameter
from scalerl.curves.levels import Levels, log_sum
from scalerl.records.curve import FloatArray

_FIRST_GRID = {0: (), 1: (64,), 2: (24, 12), 3: (24, 12, 6)}
"""Boxes along each parameter at first, in the law's order, by the number of parameters."""
_TEMPERS = (0.1, 0.4, 0.6, 0.6, 0.6, 0.6)
"""Power of the likelihood in each pass: a coarse grid steps over a narrow peak, but a softened likelihood shows its flanks."""
_MOST_DRAWS = {1: 80.0, 2: 16.0, 3: 12.0}
"""By the number of parameters: a box with more of the draws is halved along every axis, as often as evenly spread draws would need ..."""
_MOST_PARTS = 64
"""... but in one pass into no more parts than this."""


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
    """Boxes over the prior's range, fine enough for `num_draws` draws from them and from a mass elsewhere that counts as well.

    `levels_at` and `is_possible` map centres (m, d) to levels (r, m) and (m,); the prior is cut to where centres are
    possible. A law without parameters has one box in no dimensions.
    """
    num_axes = len(parameters)

    def measured(centre: FloatArray, half: FloatArray, log_volume: float = 0.0) -> Cells:
        possible = is_possible(centre)
        centre, half = centre[possible], half[possible]
        log_prior = np.log(2.0 * half).sum(axis=1)
        for axis, parameter in enumerate(parameters):
            log_prior = log_prior + parameter.log_prior(centre[:, axis])
        levels = levels_at(centre)
        outline = levels.outline()
        return Cells(centre, half, log_prior - log_volume, levels, outline, log_sum(outline))

    cells = measured(*_tiling(parameters))
    log_volume = float(log_sum(cells.log_prior))
    cells = replace(cells, log_prior=cells.log_prior - log_volume)
    for temper in _TEMPERS if num_axes else ():
        log_softened = cells.log_prior + temper * cells.log_likelihood
        log_total = log_sum(log_softened)
        if temper == _TEMPERS[-1]:
            log_total += np.logaddexp(log_elsewhere - log_sum(cells.log_prior + cells.log_likelihood), 0.0)
        num_halvings = np.ceil((log_softened - log_total + math.log(num_draws / _MOST_DRAWS[num_axes])) / (num_axes * math.log(2.0)))
        if (num_halvings > 0).any():
            cells = cells.with_parts(num_halvings > 0, measured(*_parts(cells, num_halvings), log_volume))
    return cells


def _tiling(parameters: Sequence[Parameter]) -> tuple[FloatArray, FloatArray]:
    """Centres and half edges of the first grid."""
    low, high = np.array([(parameter.log_low, parameter.log_high) for parameter in parameters]).reshape(-1, 2).T
    offsets, half = _lattice(_FIRST_GRID[len(parameters)])
    half = np.broadcast_to(half * 0.5 * (high - low), offsets.shape)
    return 0.5 * (low + high) + offsets * 0.5 * (high - low), half


def _lattice(shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Centres (m, d) and half edges (d,) of so many boxes along each axis that tile the cube from -1 to 1."""
    numbers = np.array(shape, dtype=np.float64)
    return (2.0 * np.indices(shape).reshape(len(shape), math.prod(shape)).T + 1.0) / numbers - 1.0, 1.0 / numbers


def _parts(cells: Cells, num_halvings: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centres and half edges of the boxes into which each of `cells` falls when its axes are halved so often, or as _MOST_PARTS permits."""
    num_axes = cells.centre.shape[1]
    most = int(math.log2(_MOST_PARTS)) // num_axes
    centres, halves = [], []
    for number in range(1, most + 1):
        chosen = (num_halvings >= number) if number == most else (num_halvings == number)
        offsets, share = _lattice((2**number,) * num_axes)
        half = cells.half[chosen, np.newaxis]
        centre = cells.centre[chosen, np.newaxis] + offsets * half
        centres.append(centre.reshape(-1, num_axes))
        halves.append(np.broadcast_to(half * share, centre.shape).reshape(-1, num_axes))
    return np.concatenate(centres), np.concatenate(halves)
