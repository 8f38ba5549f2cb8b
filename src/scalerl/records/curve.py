"""A training curve: reward against compute, wherever it was logged."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalerl.core.errors import DataError
from scalerl.core.units import Axis

FloatArray = NDArray[np.float64]

_LARGEST_COMPUTE, _LARGEST_RANGE = 1e200, 1e100
"""No run spends more, in any unit, or has its first evaluation at so small a share of its last: such a column holds something else."""
_GIVE_BOUNDS = "give the least and the largest reward that the grader can give"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Held-out reward against compute; `Curve.of` checks and sorts what it is given.

    The arrays are read-only, of one length n, and `compute` never decreases.
    """

    name: str
    axis: Axis
    compute: FloatArray
    """(n,) compute spent when the evaluated weights were made, 0 for the base model, in units of `axis`."""
    reward: FloatArray
    """(n,) mean reward, within `bounds`, in the unit of the log (a fraction, a percentage ...)."""
    trials: FloatArray | None = None
    """(n,) graded completions behind each mean, if the log tells."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """Least and largest reward that the grader can give: (0, 1) for pass rates, (0, 100) for percentages."""
    metric: str = "pass rate"
    """What `reward` is, as the log calls it."""
    source: str = ""
    """Where the points come from: a path, or a citation."""
    wasted_compute: float = 0.0
    """Compute spent on steps that a resume repeated, in units of `axis`; part of the bill, not of `compute`."""
    notes: tuple[str, ...] = ()
    """What the reader of the log had to decide or leave out, in sentences for the user."""

    @staticmethod
    def of(
        name: str,
        axis: Axis,
        compute: ArrayLike,
        reward: ArrayLike,
        *,
        trials: ArrayLike | None = None,
        bounds: tuple[float, float] = (0.0, 1.0),
        metric: str = "pass rate",
        source: str = "",
        wasted_compute: float = 0.0,
        notes: tuple[str, ...] = (),
    ) -> Curve:
        """A checked curve, sorted by compute. Points of equal compute are kept: they are repeated measurements.

        Raises:
            DataError: lengths differ, a number is not finite, compute is negative, or a reward is out of bounds.
        """
        where = f"{source} ({name})" if source else name
        curve = Curve(
            name=name,
            axis=axis,
            compute=_column(compute, "compute", where),
            reward=_column(reward, metric, where),
            trials=None if trials is None else _column(trials, "trials", where),
            bounds=(float(bounds[0]), float(bounds[1])),
            metric=metric,
            source=source,
            wasted_compute=wasted_compute,
            notes=notes,
        )
        _check(curve, where)
        return curve.at(np.argsort(curve.compute, kind="stable"))

    def __len__(self) -> int:
        return int(self.compute.size)

    def window(self, low: float = 0.0, high: float = np.inf) -> Curve:
        """The points with low <= compute <= high."""
        return self.at((self.compute >= low) & (self.compute <= high))

    def at(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Curve:
        """The points that a mask or an order chooses."""
        return replace(
            self,
            compute=_frozen(self.compute[chosen]),
            reward=_frozen(self.reward[chosen]),
            trials=None if self.trials is None else _frozen(self.trials[chosen]),
        )


def _check(curve: Curve, where: str) -> None:
    """Raise DataError where the columns do not make a curve."""
    (low, high), num_points = curve.bounds, curve.compute.size
    for column in (curve.reward, curve.trials):
        if column is not None and column.size != num_points:
            raise DataError(f"{num_points} amounts of compute for {column.size} values", where=where, remedy="give one value per point")
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise DataError(f"the bounds {low:g} .. {high:g} leave no room for a reward", where=where, remedy=_GIVE_BOUNDS)
    if not num_points:
        return
    if curve.compute.min() < 0.0:
        raise DataError(f"compute is negative ({curve.compute.min():g})", where=where, remedy="choose another column for compute")
    positive = curve.compute[curve.compute > 0.0]
    if positive.size and (positive.max() > _LARGEST_COMPUTE or positive.max() > _LARGEST_RANGE * positive.min()):
        span = f"{positive.min():g} .. {positive.max():g}"
        raise DataError(f"compute spans {span}, as no run does", where=where, remedy="choose another column for compute")
    if curve.trials is not None and curve.trials.min() <= 0.0:
        raise DataError("a point has no graded completions", where=where, remedy="leave such points out")
    least, largest = curve.reward.min(), curve.reward.max()
    if least < low or largest > high:
        raise DataError(f"rewards span {least:g} .. {largest:g}, outside {low:g} .. {high:g}", where=where, remedy=_GIVE_BOUNDS)


def _column(values: ArrayLike, name: str, where: str) -> FloatArray:
    try:
        column = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise DataError(f"{name} is not a column of numbers", where=where, remedy="give one number per point") from None
    if column.ndim != 1 or not np.isfinite(column).all():
        raise DataError(f"{name} holds something else than finite numbers", where=where, remedy="leave such points out")
    return column


def _frozen(column: FloatArray) -> FloatArray:
    column = column.copy()
    column.flags.writeable = False
    return column
