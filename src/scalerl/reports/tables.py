"""The tables of a report as rows of text, which the terminal and the page only lay out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from scalerl.curves.result import Fit, LawFit, Status
from scalerl.reports import words
from scalerl.reports.picture import Check, checks_of_forecasts, checks_of_later_points

_PARAMETER_WORDS = {"A": "ceiling A", "B": "exponent B", "C_mid": "half-gain compute C_mid", "R0": "start R0"}
_LAW_WORDS = {"power": "power law", "paper": "published grid search"}
_STATUS_WORDS = {"ok": "ceiling bounded", "not_identified": "ceiling not bounded", "too_few_points": "too few points"}
"""Statuses that are no plain words by themselves."""
_NUMBER = re.compile(r"<?-?[\d,.]+(e-?\d+)?[%kMGTPEZ]?")


@dataclass(frozen=True, slots=True)
class Table:
    """A caption, the heads of the columns, and rows of as many cells; the first cell names the row."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def is_numeric(self, column: int) -> bool:
        """Whether a column, counted from 0, holds numbers without words, which are aligned to the right."""
        cells = [row[column] for row in self.rows if row[column]]
        return bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)


def status(fit: Fit) -> str:
    """The fit's status as a table names it, and whether there are reasons to doubt it."""
    return status_words(fit.status) + (", doubtful" if fit.doubts else "")


def status_words(status: Status) -> str:
    """A status in plain words."""
    return _STATUS_WORDS.get(status, str(status))


def parameters(fit: Fit) -> Table:
    """The law's parameters with intervals and where each comes from."""
    caption = f"Parameters of the {law_words(fit.best.law)}" if fit.best else "Parameters"
    names = [
        *(name for name in _PARAMETER_WORDS if name in fit.parameters),
        *(name for name in fit.parameters if name not in _PARAMETER_WORDS),
    ]
    rows = tuple(
        (
            _PARAMETER_WORDS.get(name, name),
            words.estimate(fit.parameters[name], fit.curve),
            words.estimate_interval(fit.parameters[name], fit.curve),
            fit.parameters[name].source,
        )
        for name in names
    )
    return Table(caption, ("parameter", "value", f"{words.level(fit)} interval", "source"), rows)


def forecasts(fit: Fit) -> Table:
    """The forecasts that were asked for, each with what was measured there."""
    return _checks_table("Forecasts of one new evaluation", checks_of_forecasts(fit), fit)


def later_points(fit: Fit) -> Table:
    """Every point after the window beside its forecast."""
    return _checks_table("Points after the window", checks_of_later_points(fit), fit)


def laws(fit: Fit) -> Table:
    """The law asked for and the others on the same points."""
    compared = [*([fit.best] if fit.best else []), *fit.alternatives]
    rows = tuple(
        (
            law_words(law.law),
            *_ceiling(law, fit),
            words.reward(law.least_squares["A"], fit.curve),
            words.number(law.rmse),
            f"{law.aicc:.1f}" if math.isfinite(law.aicc) else "too few points",
        )
        for law in compared
    )
    header = ("law", "ceiling A", f"{words.level(fit)} interval", "least squares", "RMSE", "AICc")
    return Table("Laws side by side (lower AICc is better)", header, rows)


def comparison(fits: Sequence[Fit]) -> Table:
    """One row for each curve."""
    header = ("curve", "answer", "ceiling A", f"{words.level(fits[0])} interval", "exponent B", "half-gain compute C_mid")
    return Table("All curves", header, tuple(_comparison_row(fit) for fit in fits))


def provenance(fit: Fit) -> Table:
    """Where the numbers come from."""
    curve, (low, high) = fit.curve, fit.window
    points = f"{len(fit.fitted)} of {len(curve)} points, {words.compute_interval(low, high, curve)}"
    rows = (
        ("source", curve.source or "given in a program"),
        ("metric", f"{curve.metric}, between {curve.bounds[0]:g} and {curve.bounds[1]:g}"),
        ("compute", f"{curve.axis.name} in {curve.axis.unit}"),
        ("window", points),
        ("intervals", f"{words.level(fit)}, central"),
        ("RMSE", words.number(fit.best.rmse) if fit.best else "no fit"),
    )
    wasted = (("repeated after a resume", words.compute(curve.wasted_compute, curve)),) if curve.wasted_compute else ()
    return Table("Where this comes from", ("what", "value"), rows + wasted)


def law_words(name: str) -> str:
    """A law's name as prose has it."""
    return _LAW_WORDS.get(name, name.replace("_", " "))


def _checks_table(caption: str, checks: Sequence[Check], fit: Fit) -> Table:
    curve = fit.curve
    rows = tuple(
        (
            words.compute(check.forecast.compute, curve),
            words.reward(check.forecast.mean, curve),
            words.reward_interval(check.forecast.low, check.forecast.high, curve),
            "" if check.measured is None else words.reward(check.measured, curve),
            words.verdict(check),
        )
        for check in checks
    )
    return Table(caption, ("compute", "forecast", f"{words.level(fit)} interval", "measured", "verdict"), rows)


def _ceiling(law: LawFit, fit: Fit) -> tuple[str, str]:
    estimated = law.parameters["A"]
    return words.estimate(estimated, fit.curve), words.estimate_interval(estimated, fit.curve)


def _comparison_row(fit: Fit) -> tuple[str, ...]:
    if fit.best is None:
        return (fit.curve.name, status(fit), "", "", "", "")
    others = (words.estimate(fit.parameters[name], fit.curve) if name in fit.parameters else "" for name in ("B", "C_mid"))
    return (fit.curve.name, status(fit), *_ceiling(fit.best, fit), *others)
