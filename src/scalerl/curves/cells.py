"""Boxes over the logarithms of a law's parameters, halved where the posterior mass is.

They tile the whole range of the prior, so no mode can be missed by a start value, and nothing is drawn at random.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalerl.curves.laws import Parameter
from scalerl.records.curve import FloatArray

_FIRST_GRID = {0: (), 1: (192,), 2: (24, 12), 3: (24, 12, 6)}
"""Boxes along each parameter at first, in the law's order, by the number of parameters."""
_TEMPERS = (0.1, 0.4, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Power of the likelihood in each pass: a coarse grid steps over a narrow peak, but a softened likelihood shows its flanks."""
_LARGEST_MASS = 0.008
"""A box that holds more of the posterior is halved along every axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """m boxes in d dimensions."""

    centre: FloatArray
    """(m, d)"""
    half: FloatArray
    """(m, d) half of each edge."""
    log_prior: FloatArray
    """(m,) log of each box's prior mass."""
    log_likelihood: FloatArray
    """(m,) at the centre."""

    @property
    def log_mass(self) -> FloatArray:
        """(m,) log of prior mass times likelihood."""
        return self.log_prior + self.log_likelihood

    def at(self, chosen: NDArray[np.bool_]) -> Cells:
        """The chosen boxes."""
        return Cells(self.centre[chosen], self.half[chosen], self.log_prior[chosen], self.log_likelihood[chosen])

    def with_also(self, other: Cells) -> Cells:
        """These boxes and those of `other`."""
        return Cells(
            np.concatenate([self.centre, other.centre]),
            np.concatenate([self.half, other.half]),
            np.concatenate([self.log_prior, other.log_prior]),
            np.concatenate([self.log_likelihood, other.log_likelihood]),
        )


def refined(parameters: Sequence[Parameter], log_likelihood: Callable[[FloatArray], FloatArray]) -> Cells:
    """Boxes over the prior's range, each with at most .8 % of the posterior mass where seven passes suffice.

    `log_likelihood` maps centres (m, d) to (m,). A law without parameters has one box in no dimensions.
    """

    def measured(centre: FloatArray, half: FloatArray) -> Cells:
        log_prior = np.log(2.0 * half).sum(axis=1)
        for axis, parameter in enumerate(parameters):
            log_prior = log_prior + parameter.log_prior(centre[:, axis])
        return Cells(centre, half, log_prior, log_likelihood(centre))

    cells = measured(*_tiling(parameters))
    for temper in _TEMPERS:
        log_softened = cells.log_prior + temper * cells.log_likelihood
        mass = np.exp(log_softened - log_softened.max())
        heavy = mass > _LARGEST_MASS * mass.sum()
        if parameters and heavy.any():
            cells = cells.at(~heavy).with_also(measured(*_halves(cells.at(heavy))))
    return cells


def _tiling(parameters: Sequence[Parameter]) -> tuple[FloatArray, FloatArray]:
    """Centres and half edges of the first grid."""
    axes = list(zip(parameters, _FIRST_GRID[len(parameters)], strict=True))
    half = np.array([0.5 * (parameter.log_high - parameter.log_low) / number for parameter, number in axes])
    steps = [parameter.log_low + edge * (2.0 * np.arange(number) + 1.0) for (parameter, number), edge in zip(axes, half, strict=True)]
    centre = np.array(list(itertools.product(*steps)), dtype=np.float64)
    return centre, np.broadcast_to(half, centre.shape)


def _halves(cells: Cells) -> tuple[FloatArray, FloatArray]:
    """Centres and half edges of the 2^d boxes inside each of `cells`."""
    num_axes = cells.centre.shape[1]
    half = 0.5 * cells.half[:, np.newaxis]
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=num_axes)))
    centre = cells.centre[:, np.newaxis] + corners * half
    return centre.reshape(-1, num_axes), np.broadcast_to(half, centre.shape).reshape(-1, num_axes)
