"""The sentences of a report: what a fit says, and what it does not, in words that need no statistics."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from scalerl.core.units import Compute, format_number
from scalerl.curves.result import Estimate, Fit, Status
from scalerl.records.curve import Curve
from scalerl.reports.picture import Check, checks_of_later_points, has_intervals

NOT_IDENTIFIED = "not identified"
_LONG_REWARD = 1e9
"""Digits of rewards from here on would only fill the line."""


def headline(fit: Fit) -> str:
    """The answer, and whether the doubts that follow it should be read."""
    return f"{answer(fit)} There are reasons to doubt this, below." if fit.doubts else answer(fit)


def answer(fit: Fit) -> str:
    """The answer in one or two sentences: what the ceiling is, with its interval, or why none can be named."""
    return _HEADLINES[fit.status](fit)


def later_points(fit: Fit) -> str | None:
    """How the forecast fared on the points after the window; None where there are none to judge by."""
    checks = checks_of_later_points(fit)
    if not checks:
        return None
    error = sum(abs(check.measured - check.forecast.mean) for check in checks if check.measured is not None) / len(checks)
    points = "the one point" if len(checks) == 1 else f"{len(checks)} points"
    off = f"the mean is off by {reward(error, fit.curve)} on average"
    if not has_intervals(fit):
        return f"On {points} after the window, which the fit has not seen, {off}."
    inside = sum(check.hit is True for check in checks)
    lie = "lies" if inside == 1 else "lie"
    hits = f"{inside} {lie} inside the {level(fit)} interval of one new evaluation"
    return f"Of {points} after the window, which the fit has not seen, {hits}; {off}."


def level(fit: Fit) -> str:
    """The probability of the fit's intervals, e.g. `90%`."""
    return f"{100.0 * fit.level:g}%"


def reward(value: float, curve: Curve) -> str:
    """A reward to a thousandth of the grader's range: three decimals for pass rates, one for percentages."""
    low, high = curve.bounds
    if abs(value) >= _LONG_REWARD:
        return number(value)
    decimals = max(0, 3 - round(math.log10(min(high - low, sys.float_info.max))))
    return f"{value:.{decimals}f}"


def compute(value: float, curve: Curve) -> str:
    """An amount of compute with its unit."""
    return str(Compute(value, curve.axis))


def number(value: float) -> str:
    """A number without a unit, to three significant digits."""
    return f"{value:.3g}"


def share(part: float) -> str:
    """A part of 1 in percent; what is there is never `0.0%`."""
    return "<0.1%" if 0.0 < part < 0.0005 else f"{part:.1%}"


def device_time(device_s: float) -> str:
    """Time of devices, in hours from one on."""
    return f"{device_s:,.1f} device-seconds" if device_s < 3600.0 else f"{format_number(device_s / 3600.0)} device-hours"


def estimate(estimated: Estimate, curve: Curve) -> str:
    """The value of a law's parameter in its own unit, or that it has none."""
    return NOT_IDENTIFIED if estimated.value is None else _WRITERS[estimated.unit](estimated.value, curve)


def estimate_interval(estimated: Estimate, curve: Curve) -> str:
    """The interval of a law's parameter."""
    return _interval(estimated.low, estimated.high, curve, _WRITERS[estimated.unit])


def reward_interval(low: float, high: float, curve: Curve) -> str:
    """An interval of rewards."""
    return _interval(low, high, curve, reward)


def compute_interval(low: float, high: float, curve: Curve) -> str:
    """An interval of compute, with its unit once."""
    return _interval(low, high, curve, compute)


def verdict(check: Check) -> str:
    """Whether a forecast held what it promised."""
    if check.measured is None:
        return "not measured"
    return {True: "hit", False: "miss", None: "no interval"}[check.hit]


def _plain(value: float, curve: Curve) -> str:  # noqa: ARG001  (one signature for every writer)
    return number(value)


_WRITERS: dict[str, Callable[[float, Curve], str]] = {"reward": reward, "compute": compute, "": _plain}
"""How a value is written, by its unit."""


def _interval(low: float, high: float, curve: Curve, write: Callable[[float, Curve], str]) -> str:
    """Two bounds as words; nothing where they are one, as of a value that was given."""
    if math.isinf(high):
        return f"above {write(low, curve)}"
    if low == high:
        return ""
    return f"{write(low, curve).removesuffix(f' {curve.axis.unit}')} to {write(high, curve)}"


def _ceiling_interval(fit: Fit, ceiling: Estimate) -> str:
    """A ceiling's interval in brackets, to follow its value."""
    return f" ({level(fit)} interval {reward_interval(ceiling.low, ceiling.high, fit.curve)})" if has_intervals(fit) else ""


def _bounded(fit: Fit) -> str:
    ceiling, half = fit.parameters["A"], fit.parameters.get("C_mid")
    climb = f"The {fit.curve.metric} climbs towards a ceiling of {estimate(ceiling, fit.curve)}{_ceiling_interval(fit, ceiling)}."
    if half is None or half.value is None:
        return climb
    return f"{climb} Half of the gain is reached at {compute(half.value, fit.curve)}."


def _flat(fit: Fit) -> str:
    about = reward(float(fit.fitted.reward.mean()), fit.curve)
    if fit.doubts:  # another law may well explain a change, so none is denied
        return f"The {fit.curve.metric} is {about} on average in the window, and nothing follows about more compute."
    return (
        f"No change of the {fit.curve.metric} with compute can be told from noise: it stays about {about} in the window, "
        "and nothing follows about more compute."
    )


def _saturated(fit: Fit) -> str:
    ceiling = fit.parameters["A"]
    known = f"ceiling of {estimate(ceiling, fit.curve)}{_ceiling_interval(fit, ceiling)}"
    return f"The {fit.curve.metric} had reached its {known} before the first points: where it ends is known, how it climbed is not."


def _unbounded(fit: Fit) -> str:
    ceiling = fit.parameters.get("A")
    least = f"; it is at least {reward(ceiling.low, fit.curve)}{_ceiling_interval(fit, ceiling)}" if ceiling else ""
    return f"These points do not bound the ceiling of the {fit.curve.metric} from above{least}."


def _collapsed(fit: Fit) -> str:
    collapse = fit.collapse
    if collapse is None:
        return fit.status.meaning
    peak, when = reward(collapse.peak, fit.curve), compute(collapse.peak_compute, fit.curve)
    is_first = collapse.peak_compute <= fit.fitted.compute[0]
    course = f"fell from {peak} at {when}" if is_first else f"rose to {peak} at {when} and fell"
    last = reward(collapse.last, fit.curve)
    return f"The {fit.curve.metric} {course} to {last} by the last point: no ceiling follows from the whole series."


def _too_few(fit: Fit) -> str:
    count = len(fit.fitted)
    points = "There is one point" if count == 1 else f"There are {count or 'no'} points"
    return f"{points} in the window, fewer than a law has freedom: nothing can be said about the ceiling."


_HEADLINES: dict[Status, Callable[[Fit], str]] = {
    Status.OK: _bounded,
    Status.FLAT: _flat,
    Status.SATURATED: _saturated,
    Status.NOT_IDENTIFIED: _unbounded,
    Status.COLLAPSED: _collapsed,
    Status.TOO_FEW_POINTS: _too_few,
}
