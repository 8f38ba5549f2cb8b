"""Fit a law to a curve: what the run will reach, how well that is known, and what it is not.

    from scalerl.curves import fit

    answer = fit(curve, r0=0.40, window=(1_500, 50_000), at=(100_000,))
    print(answer)

The law of arXiv 2510.13786 is the default, its power law is fitted beside it, and `law="paper"` is that paper's own
procedure. Poor data raise nothing: the answer's status says what they do not permit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from scalerl.core.errors import UsageError, unknown_name
from scalerl.core.units import counted, format_number
from scalerl.curves.checks import Collapse, late_change
from scalerl.curves.laws import Law, Parameter
from scalerl.curves.laws.constant import Constant
from scalerl.curves.laws.exponential import Exponential
from scalerl.curves.laws.power import Power
from scalerl.curves.laws.sigmoid import Sigmoid
from scalerl.curves.paper import fit_paper
from scalerl.curves.points import Points
from scalerl.curves.posterior import Posterior, plain_posterior, posterior
from scalerl.curves.result import Draws, EarlyPhase, Estimate, Fit, LawFit, Status, aicc
from scalerl.curves.selection import Selection
from scalerl.records.curve import Curve, FloatArray

PAPER = "paper"
"""Selects the published procedure instead of a law."""

_LEAST_CLIMB_SEEN = 0.5
"""A ceiling is seen once half of the way from R0 lies behind ..."""
_CLIMB_UNSEEN = 0.05
"""... but for this probability, ..."""
_WIDEST = 0.20
"""... and its 90 % interval is no wider than this share of the reward's range; ..."""
_EDGE = 0.985
"""... and ends below this, or the range of the reward bounds it and not the points; ..."""
_NARROW = 0.06
"""... or once that interval is as narrow as this, whatever lies behind."""
_FAR_BETTER = 10.0
"""A law whose AICc is higher by this has essentially no support beside the better one (Burnham and Anderson 2002, 2.6)."""
_LEAST_EVIDENCE = 3.0
"""Factor on the prior odds of an early phase from which on it is told of."""
_PRIOR_SHARE = 0.8
"""A parameter whose 90 % interval is wider than this share of its prior's has learned nothing."""
_FEW_DRAWS = 1024
"""Enough for the laws beside the one asked for, and to see whether A moved."""
_OTHERS = (Sigmoid(), Power(), Exponential())
"""Are fitted beside the law asked for."""
_FAR_OFF, _MAD_OF_NORMAL = 10.0, 0.6745
"""A point stands out that lies farther from the law than so many robust standard deviations ..."""
_LEAST_OFF = 0.03
"""... and than this share of the reward's range ..."""
_FEWEST_TO_STAND_OUT = 10
"""... among so many."""
_LEAST_LATER = 4
"""Late points that say nothing alone of three or four unknowns."""


def fit(
    curve: Curve,
    *,
    law: str | Law = "sigmoid",
    r0: str | float = "measured",
    window: tuple[float, float] | None = None,
    level: float = 0.9,
    at: float | Sequence[float] = (),
) -> Fit:
    """The answer of `law` for `curve`.

    Args:
        curve: rewards against compute.
        law: the name of a law, a law with settings, or `paper`.
        r0: the reward at zero compute: `measured` there (free where no point is), `free`, or a number in the log's unit.
        window: least and largest compute that enter; all by default.
        level: probability of every interval.
        at: amounts of compute to forecast one new evaluation at.

    Raises:
        UsageError: `level`, `r0`, `window` or the law's name make no sense.
    """
    if not 0.0 < level < 1.0:
        raise UsageError(f"level {level:g} is no probability", where=curve.name, remedy="give one between 0 and 1, such as 0.9")
    amounts = (at,) if isinstance(at, (int, float)) else tuple(at)
    selection = Selection.of(curve, r0=r0, window=window)
    blank = Fit(curve, selection.window, level, Status.OK, None, warnings=selection.warnings, doubts=selection.doubts)
    answer = fit_paper(selection, blank) if law == PAPER else _answer(_law(law), selection, blank)
    return replace(
        answer,
        forecasts=tuple(forecast for compute in amounts if (forecast := answer.forecast(compute))),
        refit=partial(fit, curve, law=law, r0=r0, level=level),
    )


def _law(asked: str | Law) -> Law:
    """The law itself; an unknown name is told with the published procedure among the choices."""
    if isinstance(asked, Law):
        return asked
    if not isinstance(asked, str):
        raise UsageError(f"{asked!r} is no law", where="law", remedy="give a name, or a law with its settings, such as Sigmoid()")
    known = Law.family.names()
    if asked not in known:
        raise unknown_name("law", asked, [*known, PAPER])
    law: Law = Law.family.select(asked)
    return law


def _answer(law: Law, selection: Selection, blank: Fit) -> Fit:
    """`blank` with status, laws and warnings filled in."""
    if sentence := _too_few_for(law, selection):
        return replace(blank, status=Status.TOO_FEW_POINTS, warnings=(*blank.warnings, sentence))
    if collapse := Collapse.of(selection.curve):
        return _collapsed(law, selection, blank, collapse)
    return _fitted(law, selection, blank)


def _too_few_for(law: Law, selection: Selection) -> str | None:
    """A sentence if the points are fewer than the law's unknowns and one more."""
    num_levels = 1 if law.start == "R0" and selection.R0 is not None else 2
    num_unknowns = len(law.parameters(1.0)) + num_levels
    num_amounts = selection.num_distinct if law.reaches_zero else selection.num_positive
    if num_amounts > num_unknowns and selection.num_positive >= 2:
        return None
    return f"{counted(num_amounts, 'different amount')} of compute: too few for a law with {num_unknowns} unknowns."


def _fitted(law: Law, selection: Selection, blank: Fit) -> Fit:
    """`blank` with the answer for points that do not collapse."""
    points = Points.of(selection.curve, R0=selection.R0)
    found, constant = posterior(law, points), posterior(Constant(), points)
    others = [posterior(other, points, num_draws=_FEW_DRAWS) for other in _OTHERS if type(other) is not type(law)]
    as_fit = partial(_law_fit, points=points, R0_source=selection.R0_source, level=blank.level)
    best, beside = as_fit(found), [as_fit(other) for other in others]
    if isinstance(law, Constant):
        doubts = (*blank.doubts, *_outdone(best, beside), *_doubts_of_residuals(found))
        return replace(blank, status=Status.FLAT, best=best, alternatives=tuple(beside), doubts=doubts)
    # A law that leaves points at zero compute out is set beside a constant that does so too.
    level = constant if found.points is points else posterior(Constant(), found.points, num_draws=_FEW_DRAWS)
    if _is_flat(found, level):
        sentence = "A constant explains the points better: the forecast holds their level, and the climb is not identified."
        climbed = _has_climbed(constant)
        # A level that nothing rose to may be the foot of a climb.
        known = as_fit(constant) if climbed else _with_unknown_ceiling(as_fit(constant), best)
        return replace(
            blank,
            status=Status.SATURATED if climbed else Status.FLAT,
            best=_with_unknown_shape(known, found),
            alternatives=(best, *beside),
            warnings=(*blank.warnings, sentence),
            doubts=(*blank.doubts, *_doubts_of_residuals(constant)),
        )
    beside.append(as_fit(constant))
    return replace(
        blank,
        status=Status.OK if ceiling_is_bounded(found) else Status.NOT_IDENTIFIED,
        best=best,
        alternatives=tuple(beside),
        warnings=(*blank.warnings, *_phase_told(best, law, selection)),
        doubts=(
            *blank.doubts,
            *_outdone(best, beside),
            *_doubts_of_ceiling(found),
            *_doubts_of_residuals(found),
            *_doubts_of_window(found, selection),
        ),
    )


def _phase_told(best: LawFit, law: Law, selection: Selection) -> tuple[str, ...]:
    """A sentence where the points speak for a fast early phase that left a trace in them."""
    phase, chance = best.early_phase, law.chance_of_early_phase()
    if phase is None or phase.probability * (1.0 - chance) < _LEAST_EVIDENCE * chance * (1.0 - phase.probability):
        return ()
    if phase.c.high < selection.positive().compute[0]:
        return ()
    to = "" if phase.R1.value is None else f" to {format_number(phase.R1.value)}"
    scale = "" if phase.c.value is None else f" (on a scale of {selection.amount(phase.c.value)})"
    told = f"a fast early {'rise' if phase.is_rise else 'fall'}{to}{scale}"
    return (f"With probability {phase.probability:.2f} {told} comes before the climb: B and C_mid are those of the climb after it.",)


def _outdone(best: LawFit, others: list[LawFit]) -> tuple[str, ...]:
    """A sentence for each law that explains the points far better than the one asked for."""
    gains = [(other.law, best.aicc - other.aicc) for other in others]
    return tuple(f"The {law} law explains the points far better (AICc lower by {gain:.0f})." for law, gain in gains if gain > _FAR_BETTER)


def ceiling_is_bounded(found: Posterior) -> bool:
    """Whether the points bound A above: half of the climb very likely lies behind and A is known to .20, or A is known to .06 anyway."""
    width = _width(found.A)
    return width <= _NARROW or (width <= _WIDEST and _climb_is_seen(found) and float(np.quantile(found.A, 0.95)) < _EDGE)


def _climb_is_seen(found: Posterior) -> bool:
    """Whether half of the way from R0 to A very likely lies behind the last point."""
    behind = found.mean(np.array([found.points.log_last]))[:, 0] - found.R0
    return bool(np.mean(behind < _LEAST_CLIMB_SEEN * (found.A - found.R0)) <= _CLIMB_UNSEEN)


def _is_flat(found: Posterior, constant: Posterior) -> bool:
    """Whether the climb of `found` is not worth its parameters, by its evidence or by the Bayesian information criterion.

    The evidence knows of correlated noise, but at rewards near 0 it takes any late climb for likely; the criterion asks
    for one among the points, which are those of both.
    """
    n, level = len(found.points), constant.plain
    criteria = [n * math.log(max(one.optimum.squares, sys.float_info.min)) + one.num_free * math.log(n) for one in found.found]
    of_level = n * math.log(max(level.optimum.squares, sys.float_info.min)) + level.num_free * math.log(n)
    return constant.log_evidence >= found.log_evidence or of_level <= min(criteria)


def _collapsed(law: Law, selection: Selection, blank: Fit, collapse: Collapse) -> Fit:
    """No ceiling follows from a series that fell; the points up to its peak are fitted apart, and labelled."""
    low, _ = selection.curve.bounds
    share = (collapse.peak - collapse.last) / (collapse.peak - low)
    warning = (
        f"The reward fell from {format_number(collapse.peak)} at {selection.amount(collapse.peak_compute)}"
        f" to {format_number(collapse.last)} ({share:.0%} below the peak): no ceiling or forecast follows from the whole series."
    )
    before = _before_peak(law, selection.until(collapse.peak_compute), blank)
    label = f"{law.name()} up to {selection.amount(collapse.peak_compute)}"
    alternatives = () if before.best is None else (replace(before.best, law=label),)
    return replace(blank, status=Status.COLLAPSED, collapse=collapse, alternatives=alternatives, warnings=(*blank.warnings, warning))


def _before_peak(law: Law, selection: Selection, blank: Fit) -> Fit:
    """The fit of the points up to a peak, or `blank` where they are too few."""
    return blank if _too_few_for(law, selection) else _fitted(law, selection, blank)


def _has_climbed(constant: Posterior) -> bool:
    """Whether a level that does not change lies above a start level that is given or measured, by more than the noise."""
    points = constant.points
    known = points.R0 is not None or np.isneginf(points.log_compute[0])
    return bool(known and np.quantile(constant.A - constant.start, 0.05) > np.quantile(np.abs(constant.noise), 0.9))


def _law_fit(found: Posterior, *, points: Points, R0_source: str, level: float) -> LawFit:
    criterion = _aicc(found, points)
    points, law = found.points, found.law
    low, high = points.bounds
    bounded = ceiling_is_bounded(found)
    estimates = {
        law.start: _estimate(
            points.to_reward(found.R0),
            level=level,
            identified=_is_known_level(found.R0, found.A),
            source=R0_source if law.start == "R0" else "fitted",
        ),
        "A": _estimate(points.to_reward(found.A), level=level, identified=bounded),
    }
    for parameter, log_values in zip(found.parameters, found.log_parameters, strict=True):
        values = np.exp(log_values) * _scale(parameter, points)
        # Half of a gain that is not bounded lies at no known compute.
        known = _width(log_values) < _PRIOR_SHARE * parameter.log_width and (bounded or not parameter.is_compute)
        estimates[parameter.name] = _estimate(values, level=level, identified=known, unit=_unit(parameter))
    return LawFit(
        law=law.name(),
        parameters=estimates,
        rmse=(high - low) * float(np.sqrt(np.mean(_residuals(found) ** 2))),
        aicc=criterion,
        solve=partial(_least_squares, found),
        predict=partial(found.band, level=level),
        sample=partial(_draws, found),
        sample_given_A=partial(_draws_given, found),
        early_phase=_early_phase(found, level=level),
    )


def _aicc(found: Posterior, points: Points) -> float:
    """The criterion on all `points`, of the better of the law's regimes: points that a law leaves out have a level of their own."""
    num_apart = len(points) - len(found.points)
    reward, weight = points.reward[:num_apart], 1.0 / points.variance[:num_apart]
    squares = float(np.sum(weight * (reward - np.average(reward, weights=weight)) ** 2)) if num_apart else 0.0
    return min(aicc(one.optimum.squares + squares, num_points=len(points), num_free=one.num_free + bool(num_apart)) for one in found.found)


def _draws(found: Posterior) -> Draws:
    """The posterior in the curve's units."""
    points = found.points
    low, high = points.bounds
    shape = {
        parameter.name: np.exp(log_values) * _scale(parameter, points)
        for parameter, log_values in zip(found.parameters, found.log_parameters, strict=True)
    }
    return Draws(
        parameters={found.law.start: points.to_reward(found.R0), "A": points.to_reward(found.A), **shape},
        mean=lambda compute: points.to_reward(found.mean(points.log_of(compute))),
        noise=(high - low) * found.noise,
    )


def _draws_given(found: Posterior, A: float) -> Draws:
    """The posterior of the same law and points where A is known, in the curve's units."""
    low, high = found.points.bounds
    return _draws(posterior(found.law, found.points.with_ceiling((A - low) / (high - low))))


def _early_phase(found: Posterior, *, level: float) -> EarlyPhase | None:
    """What is known of a fast early phase, where the law allows for one and some draws have it."""
    points = found.points
    for part in found.parts:
        if part.regime.has_early_phase:
            log_c, of_c = part.log_parameters[:, -1], part.regime.parameters[-1]
            return EarlyPhase(
                probability=found.early_phase,
                R1=_estimate(points.to_reward(part.start), level=level, identified=_is_known_level(part.start, part.A)),
                c=_estimate(
                    np.exp(log_c) * points.first_compute,
                    level=level,
                    identified=_width(log_c) < _PRIOR_SHARE * of_c.log_width,
                    unit="compute",
                ),
                is_rise=bool(np.median(part.start - part.R0) > 0.0),
            )
    return None


def _scale(parameter: Parameter, points: Points) -> float:
    """The unit of `parameter` in that of the curve: laws count compute from the first point."""
    return points.first_compute if parameter.is_compute else 1.0


def _unit(parameter: Parameter) -> Literal["compute", ""]:
    return "compute" if parameter.is_compute else ""


def _least_squares(found: Posterior) -> dict[str, float]:
    """The optimum of the law alone, in the curve's units."""
    points, optimum = found.points, found.plain.polished(found.points)
    start, A = points.to_reward(np.array([optimum.start, optimum.A]))
    shape = {
        parameter.name: float(np.exp(log_value)) * _scale(parameter, points)
        for parameter, log_value in zip(found.parameters, optimum.log_parameters, strict=True)
    }
    return {found.law.start: float(start), "A": float(A), **shape}


def _central(draws: FloatArray, level: float) -> tuple[float, float, float]:
    """Low end, median and high end of the central interval."""
    tail = 0.5 * (1.0 - level)
    low, median, high = np.interp(np.array([tail, 0.5, 1.0 - tail]) * (draws.size - 1), np.arange(draws.size), np.sort(draws))
    return float(low), float(median), float(high)


def _estimate(
    draws: FloatArray, *, level: float, identified: bool, source: str = "fitted", unit: Literal["reward", "compute", ""] = "reward"
) -> Estimate:
    low, median, high = _central(draws, level)
    return Estimate(median if identified else None, low, high, identified=identified, source=source, unit=unit)


def _is_known_level(level: FloatArray, A: FloatArray) -> bool:
    """Whether the points say anything of a level below A."""
    return _width(level) < _PRIOR_SHARE * 0.9 * float(np.median(A))


def _width(draws: FloatArray) -> float:
    """Width of the 90 % interval: whether a parameter is identified does not hang on the level asked for."""
    low, _, high = _central(draws, 0.9)
    return high - low


def _residuals(found: Posterior) -> FloatArray:
    """(n,) of the posterior mean, in units of `points.reward`."""
    residuals: FloatArray = found.points.reward - found.expected(found.points.log_compute)
    return residuals


def _with_unknown_ceiling(constant: LawFit, asked: LawFit) -> LawFit:
    """The constant with the ceilings that the law asked for leaves possible."""
    return replace(constant, parameters={**constant.parameters, "A": replace(asked.parameters["A"], value=None, identified=False)})


def _with_unknown_shape(constant: LawFit, asked: Posterior) -> LawFit:
    """The constant with the parameters of the law asked for, of which it knows nothing but the prior's range."""
    unknown = {}
    for parameter in asked.parameters:
        low, high = (_scale(parameter, asked.points) * math.exp(edge) for edge in (parameter.log_low, parameter.log_high))
        unknown[parameter.name] = Estimate(None, low, high, identified=False, source="prior", unit=_unit(parameter))
    return replace(constant, parameters={**constant.parameters, **unknown})


def _doubts_of_ceiling(found: Posterior) -> tuple[str, ...]:
    """A sentence where the points do not bound A, and what would."""
    if ceiling_is_bounded(found):
        return ()
    why = (
        f"its 90 % interval spans {_width(found.A):.2f} of the reward's range"
        if _climb_is_seen(found)
        else "more than half of the climb may lie beyond the last one"
    )
    knows_start = found.points.R0 is not None or np.isneginf(found.points.log_compute[0])
    remedy = "train on, or evaluate more often" if knows_start else "evaluate the base model or give R0; else train on"
    return (f"A is not bounded above by these points: {why}; {remedy}.",)


def _doubts_of_residuals(found: Posterior) -> tuple[str, ...]:
    """Sentences on what the law misses: a late change, and rewards below an R0 that was given."""
    doubts = []
    points = found.points
    means = found.thinned.mean(points.log_compute)
    residuals = points.reward - means.mean(axis=0)
    if change := late_change(residuals, means, np.exp(points.log_compute)):
        course = "fall" if change < 0.0 else "rise"
        doubts.append(
            f"The late residuals {course} (twice the log likelihood ratio of a kink: {abs(change):.0f}):"
            " the law misses a late change, and its intervals are too narrow."
        )
    doubts += _outliers_told(points, residuals)
    if points.R0 is not None and points.reward.min() + 3.0 * float(residuals.std()) < points.R0:
        doubts.append("R0 was given above some of the rewards: no law that climbs from there can fit them.")
    return tuple(doubts)


def _outliers_told(points: Points, residuals: FloatArray) -> list[str]:
    """A sentence on the point that lies farthest off, where no noise puts one there: an evaluation may have failed."""
    spread = float(np.median(np.abs(residuals - np.median(residuals)))) / _MAD_OF_NORMAL
    off = np.abs(residuals)
    far = off > max(_FAR_OFF * spread, _LEAST_OFF)
    if residuals.size < _FEWEST_TO_STAND_OUT or not far.any():
        return []
    worst = int(off.argmax())
    reward = format_number(float(points.to_reward(points.reward[worst : worst + 1])[0]))
    where = format_number(float(np.exp(points.log_compute[worst])) * points.first_compute)
    count = counted(int(far.sum()), "point")
    return [f"{count} far off the law, the farthest {reward} at a compute of {where}: if an evaluation failed there, leave it out."]


def _doubts_of_window(found: Posterior, selection: Selection) -> tuple[str, ...]:
    """A sentence if A leaves its 90 % interval when the first quarter of the compute, at most half of the points, is dropped."""
    positive = selection.positive().compute
    cut = min(0.25 * float(positive[-1]), float(np.median(positive)))
    if min(np.count_nonzero(positive <= cut), np.count_nonzero(positive > cut) - _LEAST_LATER) < 2:
        return ()
    later = plain_posterior(found.law, Points.of(selection.after(cut).curve), num_draws=_FEW_DRAWS)
    low, A, high = _central(found.points.to_reward(found.A), 0.9)
    later_low, later_A, later_high = _central(later.points.to_reward(later.A), 0.9)
    if low <= later_A <= high or later_low <= A <= later_high:
        return ()
    return (
        f"A moves from {format_number(A)} to {format_number(later_A)} when the points up to {selection.amount(cut)} are dropped:"
        " a fast early phase may be mixed in; compare windows with --window.",
    )
