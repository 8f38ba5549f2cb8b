"""When to stop a run: once its reward at the budget will, very probably, stay below a target.

    prospect = StoppingRule(alpha=0.05).prospect(curve, budget=200, target=0.75)
    print(prospect)  # pass rate after 40 steps: ceiling bounded, 0.706 (90% interval 0.680 to 0.744); ...
    prospect.stops

The rule: P(R >= target) < alpha, where R is one new evaluation at the budget: what is unknown of the law, and noise. Where
the ceiling is not bounded or there are doubts, alpha is a fifth of that: the forecast's 1 - 2 alpha / 5 interval must lie
below the target anyway. A flat curve is judged by the climb that its points do not rule out, a collapsed one not at all.

A run is judged again and again, so more of those that would have reached the target are stopped than alpha says; how many is
measured by benchmarks/live_stopping.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, SupportsFloat

import numpy as np
from pydantic import Field

from scalerl.core.components import Settings
from scalerl.core.errors import ScalerlError, UsageError
from scalerl.core.units import Axis
from scalerl.curves import fit
from scalerl.curves.result import Draws, Fit, Forecast, Status
from scalerl.records.curve import Curve
from scalerl.reports import tables, words
from scalerl.reports.picture import ceiling_of

_UNSURE = 0.2
"""Share of alpha where the ceiling is not bounded, or doubted."""
_MORE_POINTS = 1.05
"""A run is judged again when it has this many times the points: the more there are, the longer a fit takes and the less is new."""


@dataclass(frozen=True, slots=True, eq=False)
class Prospect:
    """What the points so far say of a run's end; `str` is a line for its log."""

    answer: Fit
    forecast: Forecast | None
    """One new evaluation at the budget; None where no law says."""
    target: float | None
    chance: float | None
    """Probability that it reaches the target; None without a target, and where no law says."""
    stops: bool
    """Whether the rule says to stop."""

    def __str__(self) -> str:
        curve = self.answer.curve
        parts = [f"{curve.metric} after {words.compute(float(curve.compute[-1]), curve)}: {tables.status(self.answer)}"]
        if (ceiling := ceiling_of(self.answer)) is not None:
            value = "" if ceiling.value is None else f", {words.reward(ceiling.value, curve)}"
            parts[0] += f"{value} ({words.level(self.answer)} interval {words.estimate_interval(ceiling, curve)})"
        if (forecast := self.forecast) is not None:
            interval = words.reward_interval(forecast.low, forecast.high, curve)
            parts.append(f"forecast {words.reward(forecast.mean, curve)} ({interval}) at {words.compute(forecast.compute, curve)}")
        if self.target is not None and self.chance is not None:
            parts.append(f"reaches {words.reward(self.target, curve)} there with probability {self.chance:.2f}")
        return "; ".join(parts) + (": stop" if self.stops else "")


class StoppingRule(Settings):
    """How sure one must be to stop a run; the module says of what."""

    alpha: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    """A run stops when it reaches the target with a smaller probability."""
    min_points: Annotated[int, Field(ge=5)] = 8
    """Points below which nothing is said: the law has four unknowns."""

    def prospect(self, curve: Curve, *, budget: float, target: float | None = None) -> Prospect | None:
        """The end of a run with these points; None where they are too few.

        Args:
            curve: the points so far.
            budget: compute of the whole run, on the curve's axis; the last point's where it is spent.
            target: the reward that the run must reach to be worth it, in the unit of the curve.

        Raises:
            UsageError: the budget is no amount, or no reward can be the target.
        """
        if len(curve) < self.min_points:
            return None
        check_aims(curve.name, budget=budget, target=target, bounds=curve.bounds)
        end = max(budget, float(curve.compute[-1]))
        answer = fit(curve, at=(end,))
        forecast = answer.forecasts[0] if answer.forecasts else None
        draws = _climb(answer)
        if draws is None or target is None:
            return Prospect(answer, forecast, target, None, stops=False)
        chance = float(np.mean(draws.mean(np.array([end]))[:, 0] + draws.noise >= target))
        is_sure = answer.status in (Status.OK, Status.SATURATED) and not answer.doubts
        return Prospect(answer, forecast, target, chance, stops=chance < self.alpha * (1.0 if is_sure else _UNSURE))


def _climb(answer: Fit) -> Draws | None:
    """The posterior of the law that says where more compute may lead; None where none does."""
    law = answer.best
    if answer.status is Status.FLAT:
        law = answer.alternatives[0]  # the law asked for: the constant that explains the points better would promise that no climb comes
    return None if law is None or law.sample is None else law.sample()


def is_due(num_points: int) -> bool:
    """Whether a run with so many points, 1 and more, is to be judged (again): at each of the first 20, then after every 5 % more."""
    judged, before = (math.floor(math.log(number, _MORE_POINTS)) for number in (num_points, max(num_points - 1, 0.9)))
    return judged > before


@dataclass(frozen=True, slots=True)
class Search:
    """What an adapter of a search is told of its trials, which report amounts of compute with rewards; the adapters explain each."""

    budget: float
    target: float | None
    axis: Axis
    bounds: tuple[float, float]
    rule: StoppingRule

    def __post_init__(self) -> None:
        check_aims("the forecasts of trials", budget=self.budget, target=self.target, bounds=self.bounds)

    def prospect(
        self, name: str, reports: Iterable[tuple[float, SupportsFloat | None]], *, best: float | None, metric: str = "reward"
    ) -> Prospect | None:
        """The end of the trial `name`, which must reach the target or else the `best`; None without one, and where points are too few.

        Reports without a reward and those that are NaN are left out.

        Raises:
            UsageError: `best` is no reward within the bounds.
            DataError: the reports are no curve.
        """
        target = best if self.target is None else self.target
        points = [(compute, float(reward)) for compute, reward in reports if reward is not None and math.isfinite(reward)]
        if target is None or not points:
            return None
        curve = Curve.of(name, self.axis, *zip(*points, strict=True), bounds=self.bounds, metric=metric)
        return self.rule.prospect(curve, budget=self.budget, target=target)


def check_aims(where: str, *, budget: float | None, target: float | None, bounds: tuple[float, float] | None) -> None:
    """Raise UsageError where a target that no reward can reach, or no budget, would stop every run."""
    if budget is not None and not (math.isfinite(budget) and budget > 0.0):
        raise UsageError(f"{budget:g} is no budget", where=where, remedy="give the compute of the whole run, above 0")
    low, high = bounds or (-math.inf, math.inf)
    if target is not None and not (math.isfinite(target) and low <= target <= high):
        raise UsageError(
            f"the reward to be reached, {target:g}, is outside {low:g} .. {high:g}",
            where=where,
            remedy="give targets and bounds in the unit of the reported rewards",
        )


@contextmanager
def harmless(name: str) -> Iterator[None]:
    """Turn whatever fails inside into a warning that there is no forecast for `name`: no training ends by a fault of its forecast."""
    try:
        yield
    except ScalerlError as error:
        warnings.warn(f"no forecast for {error}", RuntimeWarning, stacklevel=3)
    except Exception as error:  # The edge to somebody else's training, which may have run for weeks.
        warnings.warn(f"no forecast for {name}: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=3)


def refusal_to_minimise(where: str) -> UsageError:
    """The error for a loss, which falls towards a floor that no law here knows."""
    return UsageError(
        "a value to be minimised has no ceiling to forecast",
        where=where,
        remedy="report a bounded reward and maximise it, for an error rate 1 minus it",
    )
