"""What follows from a fit, in words and tables: targets, a budget, and what shorter runs would have predicted."""

from __future__ import annotations

import math

from scalerl.curves.backtest import Prefix
from scalerl.curves.decisions import MARGIN, SURE, Outlook, Reach, Verdict, leads_on, percent
from scalerl.curves.result import Estimate, Fit
from scalerl.reports import tables, words
from scalerl.reports.tables import Table

PRIOR = "it leans on taking every ceiling for equally likely beforehand"
"""What a probability is worth where the points do not bound a ceiling."""
_FROM_THE_START = "from the start"
_VERDICTS = {
    Verdict.STOP: "Stop",
    Verdict.CONTINUE: "Continue",
    Verdict.SCALE: "Continue, and scale: a larger budget pays too",
    Verdict.UNDECIDED: "Not decided by these points",
}


def sentences(fit: Fit) -> tuple[str, ...]:
    """What follows for each target, for the budget, and for a comparison with another recipe; nothing where nothing was asked."""
    decisions = fit.decisions
    if decisions is None:
        return ()
    if not leads_on(fit):
        is_published = fit.best is not None and fit.best.sample is None
        cause = "the published procedure gives no intervals" if is_published else f"the curve is {tables.status_words(fit.status)}"
        return (f"Nothing follows for a target or a budget: {cause}.",)
    said = [_reach(reach, fit) for reach in decisions.reaches]
    if decisions.budget is not None:
        said.append(_outlook(decisions.outlook, fit, budget=decisions.budget))
    if decisions.detectable is not None:
        least = words.reward(decisions.detectable, fit.curve)
        said.append(f"One run of each of two recipes, known as well as this one, would show ceilings that differ by {least} or more.")
    return tuple(said)


def targets(fit: Fit) -> Table:
    """Every target with the compute that it needs."""
    rows = tuple(
        (
            words.reward(reach.target, fit.curve),
            percent(reach.probability),
            _needed(reach, fit),
            _needed_interval(reach.compute, fit),
            "" if reach.by_budget is None else percent(reach.by_budget),
        )
        for reach in (fit.decisions.reaches if fit.decisions else ())
    )
    return Table("Targets", ("target", "probability", "compute needed", f"{words.level(fit)} interval", "within the budget"), rows)


def backtest_sentences(fit: Fit) -> tuple[str, ...]:
    """From where on the run's end could have been told; nothing where it was not asked."""
    tested = fit.backtest
    if tested is None:
        return ()
    if tested.end is None:
        return ("No part of these points comes before their end: there is nothing to backtest.",)
    end, margin = words.reward(tested.end, fit.curve), words.reward(tested.margin, fit.curve)
    if tested.enough is None:
        return (f"No shorter run would have predicted the end, {end}, within {margin}.",)
    predicted = (
        f"The points up to {_place(tested.enough, fit)} would have predicted the end, {end}, within {margin}, as all longer prefixes do"
    )
    if tested.bounded is None:
        return (f"{predicted}; none of them bounds the ceiling.",)
    return (f"{predicted}; the ceiling is bounded from {_place(tested.bounded, fit)} on.",)


def prefixes(fit: Fit) -> Table:
    """Every prefix with its ceiling and its forecast of the end."""
    rows = tuple(_prefix(prefix, fit) for prefix in (fit.backtest.prefixes if fit.backtest else ()))
    level = f"{words.level(fit)} interval"
    return Table(
        "What shorter runs would have said",
        ("compute", "share", "points", "answer", "ceiling A", level, "forecast of the end", "error"),
        rows,
    )


def _reach(reach: Reach, fit: Fit) -> str:
    target = words.reward(reach.target, fit.curve)
    chance = f"The {fit.curve.metric} reaches {target} with probability {percent(reach.probability)}"
    when = ""
    if reach.compute.high == 0.0:
        when = f", {_FROM_THE_START}"
    elif reach.compute.identified:
        when = f", at {_needed(reach, fit)} ({words.level(fit)} interval {_needed_interval(reach.compute, fit)})"
    within = ""
    if reach.by_budget is not None:
        within = f"; within the budget with probability {percent(reach.by_budget)}"
    is_open = not fit.parameters["A"].identified and 1.0 - SURE < reach.probability < SURE
    leaning = f". These points do not bound the ceiling: {PRIOR}" if is_open else ""
    return f"{chance}{when}{within}{leaning}."


def _outlook(outlook: Outlook | None, fit: Fit, *, budget: float) -> str:
    curve = fit.curve
    until = words.compute(budget, curve)
    if outlook is None:
        return f"The budget of {until} is spent: the last point lies at {words.compute(fit.window[1], curve)}."
    margin = words.reward(MARGIN * (curve.bounds[1] - curve.bounds[0]), curve)
    spent = words.compute(outlook.spent, curve).removesuffix(f" {curve.axis.unit}")
    gain = f"from {spent} to {until} the {curve.metric} gains {_amount(outlook.gain, fit)}"
    chance = f"more than {margin} with probability {percent(outlook.worthwhile)}"
    left = f"at its end, {_amount(outlook.left, fit)} are left to the ceiling"
    if outlook.left.value is None:
        least = words.reward(outlook.left.low, curve)
        left = f"how much is left at its end is not known, as these points do not bound the ceiling ({least} or more)"
    return f"{_VERDICTS[outlook.verdict]}: {gain}, {chance}; {left}."


def _amount(estimated: Estimate, fit: Fit) -> str:
    interval = words.estimate_interval(estimated, fit.curve)
    return words.estimate(estimated, fit.curve) + (f" ({words.level(fit)} interval {interval})" if interval else "")


def _needed(reach: Reach, fit: Fit) -> str:
    if reach.compute.high == 0.0:
        return _FROM_THE_START
    return "never, or not known" if reach.compute.value is None else words.compute(reach.compute.value, fit.curve)


def _needed_interval(needed: Estimate, fit: Fit) -> str:
    """An interval of compute, whose upper end, and lower too, may be never."""
    if math.isinf(needed.low):
        return "never"
    if math.isinf(needed.high):
        return f"{words.compute(needed.low, fit.curve)} to never"
    return words.compute_interval(needed.low, needed.high, fit.curve)


def _place(prefix: Prefix, fit: Fit) -> str:
    return f"{words.compute(prefix.compute, fit.curve)} ({prefix.share:.0%} of the compute)"


def _prefix(prefix: Prefix, fit: Fit) -> tuple[str, ...]:
    curve = fit.curve
    ceiling = ("", "") if prefix.A is None else (words.estimate(prefix.A, curve), words.estimate_interval(prefix.A, curve))
    forecast = "" if prefix.forecast is None else words.estimate(prefix.forecast, curve)
    error = "" if prefix.error is None else words.reward(prefix.error, curve)
    return (
        words.compute(prefix.compute, curve),
        f"{prefix.share:.0%}",
        str(prefix.points),
        tables.status_words(prefix.status),
        *ceiling,
        forecast,
        error,
    )
