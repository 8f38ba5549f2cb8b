"""One arm of a comparison: a recipe, with the fits of its runs, which differ in their seed alone.

    arm = Arm("CISPO", (fit(seed_0), fit(seed_1), fit(seed_2)))
    np.quantile(arm.A, [0.05, 0.5, 0.95])

Its ceiling and its curve are those of the recipe, not of a run: the spread between seeds (`curves/seeds.py`) is in them, by
its prior alone where there is one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from scalerl.core.errors import UsageError
from scalerl.core.units import Axis
from scalerl.curves.decisions import draws_of, leads_on
from scalerl.curves.result import Draws, Fit
from scalerl.curves.seeds import SPREAD, Pooled, pooled
from scalerl.records.curve import Curve, FloatArray

_LOG_B_SPREAD = 0.1
"""Prior scale of the standard deviation of log B between seeds: ten times that of A, which is a share of 1."""
_LEAST_GAIN = 1e-3
"""Share of the reward's range below which a curve has no gain that could be stretched."""


@dataclass(frozen=True, eq=False)
class Arm:
    """A recipe and the fits of its runs. Curves of different tasks are no seeds of each other: compare within a task.

    Raises:
        UsageError: there is no fit, the fits differ in their axis or bounds, or two are of one run.
    """

    name: str
    fits: tuple[Fit, ...]

    def __post_init__(self) -> None:
        if not self.fits:
            raise UsageError("there is no run of it", where=self.name, remedy="name runs that were read")
        if len({(fit.curve.axis, fit.curve.bounds) for fit in self.fits}) > 1:
            raise UsageError(
                "its runs do not share one axis of compute and one range of rewards", where=self.name, remedy="choose with --x and --bounds"
            )

        twins = (fit for one, fit in combinations(self.answered, 2) if _is_same_run(one.fitted, fit.fitted))
        if twin := next(twins, None):
            raise UsageError(
                f"{twin.curve.name} is there twice: its points are those of another run",
                where=self.name,
                remedy="name every run once, since a copy is no second seed",
            )

    @property
    def axis(self) -> Axis:
        """What its compute is counted in."""
        return self.fits[0].curve.axis

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and largest reward."""
        return self.fits[0].curve.bounds

    @cached_property
    def answered(self) -> tuple[Fit, ...]:
        """The fits that say where more compute leads; the others had collapsed, were flat, or have too few points."""
        return tuple(fit for fit in self.fits if leads_on(fit))

    @property
    def is_bounded(self) -> bool:
        """Whether the points of any run bound its ceiling: those of its other seeds lie near."""
        return any(fit.parameters["A"].identified for fit in self.answered)

    @property
    def A(self) -> FloatArray:
        """(N,) draws of the recipe's ceiling, in the unit of the reward."""
        return self._ceiling.centre

    @property
    def spread(self) -> FloatArray:
        """(N,) draws of the standard deviation of the ceilings of its seeds."""
        return self._ceiling.spread

    def mean(self, compute: FloatArray) -> FloatArray:
        """(N, k) draws of the recipe's mean curve: the average of its runs', stretched so that it ends at the recipe's ceiling."""
        compute = np.concatenate([[0.0], compute])
        courses = [draws.mean(compute)[chosen] for draws, chosen in zip(self._draws, self._ceiling.chosen, strict=True)]
        ends = [draws.parameters["A"][chosen] for draws, chosen in zip(self._draws, self._ceiling.chosen, strict=True)]
        course, end = np.mean(courses, axis=0), np.mean(ends, axis=0)
        start, least = course[:, :1], _LEAST_GAIN * (self.bounds[1] - self.bounds[0])
        stretch = (self.A - start[:, 0]) / np.maximum(end - start[:, 0], least)
        stretched: FloatArray = start + stretch[:, np.newaxis] * (course[:, 1:] - start)
        return stretched

    def B_given(self, A: float) -> FloatArray | None:
        """(N,) draws of the recipe's B where its ceiling is known to be `A`; None where a law has no B."""
        refits = [fit.best.sample_given_A for fit in self.answered if fit.best is not None and fit.best.sample_given_A is not None]
        draws = [refit(A).parameters.get("B") for refit in refits]
        logs = [np.log(B) for B in draws if B is not None]
        return np.exp(pooled(logs, scale=_LOG_B_SPREAD).centre) if len(logs) == len(self.answered) else None

    @cached_property
    def _draws(self) -> list[Draws]:
        return [draws_of(fit) for fit in self.answered]

    @cached_property
    def _ceiling(self) -> Pooled:
        low, high = self.bounds
        return pooled([draws.parameters["A"] for draws in self._draws], scale=SPREAD * (high - low), bounds=self.bounds)


def _is_same_run(one: Curve, other: Curve) -> bool:
    return np.array_equal(one.compute, other.compute) and np.array_equal(one.reward, other.reward)
