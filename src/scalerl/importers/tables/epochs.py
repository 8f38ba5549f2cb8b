"""Steps that start again with every epoch: they are counted on, since no step was repeated and nothing was wasted.

    epoch   step   gpu_hours
    0       99     198          an epoch ends: the steps go back to where they began, and the run goes on
    0       100    200
    1       1      202          -> step 101

A restart of the run would bring a counter back, to nothing or to its checkpoint. Two kinds of counter tell that none did:
the epoch itself, which rises, and a total or a clock that grows as much as it usually does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalerl.importers.tables.lineage import usual_gap, usual_rate
from scalerl.records.curve import FloatArray

_USUAL = 3.0
"""A total has gone on where it grew by its usual amount within this factor."""
_ALIKE = 1.1
"""Epochs are equally long within this factor; where only a total tells, unlike stretches are restarts that it ran through."""


def counted_on(steps: FloatArray, *, epoch: FloatArray | None, total: FloatArray | None) -> tuple[FloatArray, int]:
    """(n,) `steps` counted on through the epochs in which they start again, and the number of these: 1 where they do not.

    Args:
        steps: (n,) as logged.
        epoch: (n,) NaN where absent.
        total: (n,) a running total or a clock, NaN where absent.
    """
    for counter, goes_on in ((epoch, _rises), (total, _grows_as_usual)):
        if counter is None:
            continue
        ends = _Ends.of(steps, counter)
        chosen = goes_on(ends)
        if chosen.any():
            passed = np.zeros(steps.size)
            passed[ends.rows[chosen]] = ends.lengths[chosen]
            return steps + np.cumsum(passed), int(chosen.sum()) + 1
    return steps, 1


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """Where the steps go back to where they began."""

    rows: NDArray[np.int64]
    """(k,) first row of what follows."""
    lengths: FloatArray
    """(k,) steps passed since the one before."""
    growth: FloatArray
    """(k,) of the counter."""
    usual_growth: float
    """Of the counter, for as many steps."""
    longest: float
    """Steps passed up to the furthest of all."""

    @staticmethod
    def of(steps: FloatArray, counter: FloatArray) -> _Ends:
        """As the rows that have the counter tell."""
        (at,) = np.nonzero(np.isfinite(counter))
        counted, values = steps[at], counter[at]
        (back,) = np.nonzero(np.diff(counted) < 0)
        if not back.size:
            return _Ends(back, np.empty(0), np.empty(0), 0.0, 0.0)
        gap, begin = usual_gap(counted), float(counted[back + 1].min())
        # An evaluation of the base, as step 0, belongs to no epoch.
        back = back[(counted[back + 1] == begin) & (begin <= max(gap, counted[0]))]
        ahead = begin if 0.0 < begin <= gap else gap
        # Rows in between may be evaluations, of the epoch that ends or of the one that begins.
        between = zip(at[back] + 1, at[back + 1] + 1, strict=True)
        return _Ends(
            rows=np.array([first + int(np.argmax(steps[first:end] <= begin)) for first, end in between], dtype=np.int64),
            lengths=counted[back] - begin + ahead,
            growth=values[back + 1] - values[back],
            usual_growth=usual_rate(counted, values) * ahead,
            longest=float(counted.max()) - begin + ahead,
        )


def _rises(ends: _Ends) -> NDArray[np.bool_]:
    return ends.growth > 0


def _grows_as_usual(ends: _Ends) -> NDArray[np.bool_]:
    usual = (ends.growth > 0) & (ends.growth >= ends.usual_growth / _USUAL) & (ends.growth <= ends.usual_growth * _USUAL)
    return usual & bool((ends.lengths[usual] >= ends.longest / _ALIKE).all())
