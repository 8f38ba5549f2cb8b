"""What a plot of a fit draws, computed once for terminal, page and figure: points by role, laws over compute, ranges.

Nothing here knows how it is drawn. Compute is in units of the curve's axis, reward in the unit of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalerl.curves.result import Band, Estimate, Fit, Forecast, Status
from scalerl.records.curve import Curve, FloatArray

_OUTLOOK = 2.0
"""Where nothing lies beyond the window, laws are drawn to this multiple of the last point."""
_MEASURED_THERE = 0.02
"""A forecast is judged by a later evaluation whose compute differs by at most this share."""


@dataclass(frozen=True, slots=True)
class Check:
    """A forecast beside the evaluation that came out there, None where there was none."""

    forecast: Forecast
    measured: float | None

    @property
    def hit(self) -> bool | None:
        """Whether the measured reward lies inside the interval; None where nothing was measured, or the law gives no interval."""
        if self.measured is None or self.forecast.low == self.forecast.high:
            return None
        return self.forecast.low <= self.measured <= self.forecast.high


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """The drawable parts of one fit."""

    earlier: Curve
    """Points before the window."""
    fitted: Curve
    later: Curve
    """Points after the window, which the fit has not seen."""
    grid: FloatArray
    """(num_points,) compute at which laws are drawn."""
    band: Band | None
    """The law that was asked for, over the grid."""
    beside: tuple[tuple[str, Band], ...]
    """Other laws that climb, by name, over the grid."""
    ceiling: Estimate | None
    """A, where there is a climb."""
    compute_range: tuple[float, float]
    """Least and largest positive compute to show."""
    reward_range: tuple[float, float]
    """Least and largest reward to show."""


def picture_of(fit: Fit, *, num_points: int = 160) -> Picture:
    """The parts of a plot of `fit`, with laws evaluated at `num_points` amounts of compute, evenly spaced in their logarithm."""
    curve = fit.curve
    compute_range = compute_range_of([fit])
    grid = np.geomspace(*compute_range, num_points)
    band = fit.band(grid)
    ceiling = ceiling_of(fit)
    return Picture(
        earlier=curve.window(high=np.nextafter(fit.window[0], -np.inf)),
        fitted=fit.fitted,
        later=later_points(fit),
        grid=grid,
        band=band,
        beside=tuple((law.law, law.predict(grid)) for law in fit.alternatives if "B" in law.parameters),
        ceiling=ceiling,
        compute_range=compute_range,
        reward_range=_reward_range(curve, band, ceiling),
    )


def ceiling_of(fit: Fit) -> Estimate | None:
    """A; None where there is no fit or no climb, whose level may be no ceiling."""
    return None if fit.status is Status.FLAT else fit.parameters.get("A")


def compute_range_of(fits: Sequence[Fit]) -> tuple[float, float]:
    """The positive compute to show: every point and forecast of `fits`, and an outlook for laws where nothing lies beyond a window."""
    positive = np.concatenate([fit.curve.compute[fit.curve.compute > 0.0] for fit in fits])
    if not positive.size:
        return 1.0, _OUTLOOK
    first, last = float(positive.min()), float(positive.max())
    beyond = [float(compute) for fit in fits for compute in later_points(fit).compute] + [
        forecast.compute for fit in fits for forecast in fit.forecasts
    ]
    outlook = _OUTLOOK * (last if any(fit.best is not None for fit in fits) else first)
    return first, max([last, _OUTLOOK * first, *(beyond or [outlook])])


def later_points(fit: Fit) -> Curve:
    """The points after the window, which the fit has not seen."""
    return fit.curve.window(low=np.nextafter(fit.window[1], np.inf))


def has_intervals(fit: Fit) -> bool:
    """Whether the fit says how well it knows anything; the published procedure does not."""
    return "A" in fit.parameters and fit.parameters["A"].low < fit.parameters["A"].high


def checks_of_forecasts(fit: Fit) -> tuple[Check, ...]:
    """Each forecast that was asked for, with the later evaluation within 2 % of its compute, if there is one."""
    return tuple(Check(forecast, _measured_near(forecast.compute, fit)) for forecast in fit.forecasts)


def checks_of_later_points(fit: Fit) -> tuple[Check, ...]:
    """Each point after the window, with what the fit forecasts there; none where there is no fit."""
    later = later_points(fit)
    band = fit.band(later.compute)
    if band is None:
        return ()
    columns = (later.compute.tolist(), band.mean.tolist(), band.low.tolist(), band.high.tolist())
    return tuple(Check(Forecast(*row), measured) for *row, measured in zip(*columns, later.reward.tolist(), strict=True))


def residuals(fit: Fit) -> FloatArray | None:
    """(n,) reward minus the law's mean at each fitted point; None where there is no fit."""
    band = fit.band(fit.fitted.compute)
    return None if band is None else fit.fitted.reward - band.mean


def linear_form(fit: Fit) -> tuple[FloatArray, FloatArray] | None:
    """The fitted points as (C, F), each (m,), with F = C_mid^B / ((A - R0)/(R - R0) - 1), which is C^B under the sigmoid.

    log F against log C then has slope B. Points outside of (R0, A) have no F and are left out; None where the law has not
    all four parameters.
    """
    values = [fit.parameters[name].value for name in ("A", "B", "C_mid", "R0") if name in fit.parameters]
    known = [value for value in values if value is not None]
    if len(known) < 4:
        return None
    A, B, C_mid, R0 = known
    points = fit.fitted
    inside = (points.reward > R0) & (points.reward < A) & (points.compute > 0.0)
    with np.errstate(over="ignore", under="ignore"):  # beyond all numbers, F is infinite
        F = np.exp(B * np.log(C_mid) - np.log((A - R0) / (points.reward[inside] - R0) - 1.0))
    return points.compute[inside], F


def _measured_near(compute: float, fit: Fit) -> float | None:
    later = later_points(fit)
    if not len(later):
        return None
    nearest = int(np.abs(later.compute - compute).argmin())
    return float(later.reward[nearest]) if abs(later.compute[nearest] - compute) <= _MEASURED_THERE * compute else None


def _reward_range(curve: Curve, band: Band | None, ceiling: Estimate | None) -> tuple[float, float]:
    """Room for every point, the band and a ceiling that is known, with a margin, inside the bounds of the grader."""
    shown = [curve.reward]
    if band is not None:
        shown += [band.low, band.high]
    if ceiling is not None and ceiling.identified:
        shown.append(np.array([ceiling.low, ceiling.high]))
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    least, largest = (float(values.min()), float(values.max())) if values.size else curve.bounds
    margin = 0.05 * (largest - least) or 0.05 * (curve.bounds[1] - curve.bounds[0])
    return max(least - margin, min(curve.bounds[0], least)), min(largest + margin, max(curve.bounds[1], largest))
