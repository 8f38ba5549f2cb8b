"""The answer for programs: what `scalerl fit --json` and `scalerl report --json` print, as plain data and as valid JSON.

{"axis": {"name", "unit"}, "level": 0.9, "curves": [Fit.to_dict() and its own "axis"], "comparison": {...} or null}

"comparison" is {"domains": [Comparison.to_dict()]} where `scalerl compare` asked for one, a domain for each thing that was
evaluated. A report of runs of our own has "runs" too, each with its counts, ledger and checks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from scalerl.core.errors import UsageError
from scalerl.core.plain import finite
from scalerl.core.units import Axis
from scalerl.curves.comparison import Comparison
from scalerl.curves.result import Fit
from scalerl.reports.run import RunReport


def to_document(fits: Sequence[Fit], *, runs: Sequence[RunReport] = (), compared: Sequence[Comparison] = ()) -> dict[str, Any]:
    """The fits, the runs that they are of and comparisons of them, as plain data without infinities: an interval's missing bound is None.

    `axis` is None where the curves do not share one; each curve names its own.

    Raises:
        UsageError: there is no fit.
    """
    if not fits:
        raise UsageError("there is no curve to report", remedy="fit at least one")
    axes = {fit.curve.axis for fit in fits}
    curves = [{**fit.to_dict(), "axis": _axis(fit.curve.axis)} for fit in fits]
    document: dict[str, Any] = {
        "axis": _axis(axes.pop()) if len(axes) == 1 else None,
        "level": fits[0].level,
        "curves": curves,
        "comparison": None,
    }
    if compared:
        document["comparison"] = {"domains": [one.to_dict() for one in compared]}
    if runs:
        document["runs"] = [run.to_dict() for run in runs]
    finite_document: dict[str, Any] = finite(document)
    return finite_document


def to_json(fits: Sequence[Fit], *, runs: Sequence[RunReport] = (), compared: Sequence[Comparison] = ()) -> str:
    """`to_document` as indented JSON in plain ASCII, which every parser and every terminal reads."""
    return json.dumps(to_document(fits, runs=runs, compared=compared), indent=2, allow_nan=False)


def _axis(axis: Axis) -> dict[str, str]:
    return {"name": axis.name, "unit": axis.unit}
