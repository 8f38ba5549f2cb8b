"""What `print(answer)` shows of a fit: the status in words, doubts, parameters, forecasts, decisions, and what was assumed.

Plain text for a Python session; `scalerl.reports` draws the same answer on a terminal, on a page and as a figure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scalerl.core.text import printable
from scalerl.core.units import Compute, counted, format_number

if TYPE_CHECKING:
    from scalerl.curves.result import Fit


def printout(answer: Fit) -> str:
    """The report of a fit, some lines of plain text."""
    lines = [
        f"{answer.curve.name}: {answer.status}. {answer.status.meaning}",
        *(f"  ! {doubt}" for doubt in answer.doubts),
        *(f"  {line}" for line in (*_parameters(answer), *_forecasts(answer), *_decisions(answer))),
        *(f"  - {note}" for note in (_basis(answer), *answer.warnings, *answer.curve.notes)),
    ]
    return "\n".join(printable(line).rstrip() for line in lines)


def _parameters(answer: Fit) -> list[str]:
    """A line for each parameter: name, value, interval, unit, and where it comes from if not from the fit."""
    rows = [
        (
            name,
            "not identified" if estimate.value is None else format_number(estimate.value),
            _interval(estimate.low, estimate.high),
            answer.curve.axis.unit if estimate.unit == "compute" else "",
            "" if estimate.source == "fitted" else estimate.source,
        )
        for name, estimate in answer.parameters.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True) if width) for row in rows]


def _forecasts(answer: Fit) -> list[str]:
    return [
        f"forecast of one new evaluation at {Compute(forecast.compute, answer.curve.axis)}: "
        f"{format_number(forecast.mean)}  {_interval(forecast.low, forecast.high)}"
        for forecast in answer.forecasts
    ]


def _decisions(answer: Fit) -> list[str]:
    return [] if answer.decisions is None else answer.decisions.lines(answer)


def _basis(answer: Fit) -> str:
    """What the answer rests on, and how its intervals are meant."""
    low, high = (Compute(edge, answer.curve.axis) for edge in answer.window)
    fitted = f"{answer.best.law} law on " if answer.best else ""
    return f"{fitted}{counted(len(answer.fitted), 'point')} from {low} to {high}; intervals hold with probability {answer.level:g}"


def _interval(low: float, high: float) -> str:
    """An interval in brackets; nothing where it is one value, as of what was given."""
    if low == high:
        return ""
    return f"(above {format_number(low)})" if math.isinf(high) else f"({format_number(low)} to {format_number(high)})"
