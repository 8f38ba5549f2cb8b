"""Fits, and the runs that they are of, as one HTML file that works offline: sentences, plots to hover and zoom, tables, sources.

    write_html(fits, Path("report.html"), title="Learning rates", written=date(2026, 1, 31))

The file asks the network for nothing: plotly.js (assets/) is inside, fonts are the reader's own, and a content security
policy admits no script but the page's own two, by their hash. Names in foreign logs are text everywhere.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from scalerl.core.errors import OccupiedError, ScalerlError, UsageError
from scalerl.core.files import write_atomically
from scalerl.core.plain import finite
from scalerl.core.text import printable
from scalerl.curves.comparison import Comparison
from scalerl.curves.result import Fit
from scalerl.records.curve import Curve, FloatArray
from scalerl.reports import comparison, costs, decisions, tables, words
from scalerl.reports import run as run_tables
from scalerl.reports.picture import has_intervals, linear_form, picture_of, residuals
from scalerl.reports.run import RunReport

_FOLDER = Path(__file__).parent
_GENERATOR = "scalerl"
_MARK = f'<meta name="generator" content="{_GENERATOR} '.encode()
_MARK_WITHIN_BYTES = 4096
_SIGNIFICANT_DIGITS = 6
_SUFFIXES = (".html", ".htm")


def write_html(
    fits: Sequence[Fit],
    path: Path,
    *,
    title: str,
    written: date,
    runs: Sequence[RunReport] = (),
    compared: Sequence[Comparison] = (),
) -> None:
    """Write the report of `fits`, of the `runs` among whose curves they are and of comparisons of them to `path`.

    The file is written whole or not at all, and over an older report only.

    Raises:
        UsageError: there is no fit, or `path` does not end in .html or .htm.
        OccupiedError: something else than a report of scalerl lies at `path`.
        ScalerlError: the file cannot be written.
    """
    page = render_html(fits, title=title, written=written, runs=runs, compared=compared)
    _check_place(path)
    write_atomically(path, page)


def render_html(
    fits: Sequence[Fit], *, title: str, written: date, runs: Sequence[RunReport] = (), compared: Sequence[Comparison] = ()
) -> str:
    """The report of `fits`, of the `runs` that they are of and of comparisons of them, as the text of a page dated `written`.

    Raises:
        UsageError: there is no fit.
    """
    if not fits:
        raise UsageError("there is no curve to report", remedy="fit at least one")
    environment = Environment(
        loader=PackageLoader("scalerl.reports"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals.update(tables=tables, words=words, run_tables=run_tables, costs=costs, decisions=decisions, comparison=comparison)
    environment.finalize = _printable
    half_ways = [half for run in runs for half in run.half_ways]
    proved_of = [(fit, next((run.summary.ceiling_of(fit) for run in runs if fit in run.fits), None)) for fit in fits]
    scripts = [_asset("assets/plotly-basic.min.js"), _asset("templates/plots.js")]
    return environment.get_template("report.html.j2").render(
        title=title,
        written=written.isoformat(),
        version=importlib.metadata.version("scalerl"),
        generator=_GENERATOR,
        fits=fits,
        runs=runs,
        compared=compared,
        half_ways=half_ways,
        comparable=len(fits) > 1 and len({fit.curve.axis for fit in fits}) == 1,
        plots=finite([*(_plot(fit, proved) for fit, proved in proved_of), *(_plot(half.fit, None) for half in half_ways)]),
        num_compared=len(fits),
        run_plots=finite([_run_plots(run) for run in runs]),
        style=_asset("templates/report.css"),
        scripts=scripts,
        script_hashes=Markup(" ").join(_policy_hash(script) for script in scripts),
    )


def _plot(fit: Fit, proved: float | None) -> dict[str, Any]:
    """What `plots.js` draws of one fit and the ceiling that its task proves, in plain numbers; None where there is nothing to draw."""
    picture = picture_of(fit)
    low, high = picture.reward_range
    band, ceiling, linear = picture.band, picture.ceiling, linear_form(fit)
    return {
        "name": printable(fit.curve.name),
        "metric": printable(fit.curve.metric),
        "compute": printable(fit.curve.axis.label),
        "level": words.level(fit) if has_intervals(fit) else None,
        "rewards": (low, high) if proved is None else (min(low, proved), max(high, proved + 0.03 * (high - low))),
        "proved": proved,
        "earlier": _points(picture.earlier),
        "fitted": _points(picture.fitted),
        "later": _points(picture.later),
        "grid": _numbers(picture.grid),
        "law": band and {"mean": _numbers(band.mean), "low": _numbers(band.low), "high": _numbers(band.high)},
        "law_name": tables.law_words(fit.best.law) if fit.best else None,
        "beside": [{"name": tables.law_words(name), "mean": _numbers(other.mean)} for name, other in picture.beside],
        "ceiling": ceiling and ceiling.identified and {"value": ceiling.value, "low": ceiling.low, "high": ceiling.high},
        "ceilings": _ceilings(fit),
        "residuals": _numbers(residuals(fit)),
        "linear": linear and {"x": _numbers(linear[0]), "y": _numbers(linear[1]), "slope": fit.parameters["B"].value},
    }


def _ceilings(fit: Fit) -> dict[str, Any] | None:
    """A by the share of the compute that its points had used, where shorter runs were fitted."""
    known = [(prefix.share, prefix.A) for prefix in (fit.backtest.prefixes if fit.backtest else ()) if prefix.A is not None]
    return (
        {
            "share": [share for share, _ in known],
            "low": [A.low for _, A in known],
            "high": [A.high for _, A in known],
            "value": [A.value for _, A in known],
        }
        if known
        else None
    )


def _run_plots(run: RunReport) -> dict[str, Any]:
    """What `plots.js` draws of one run beside its curves: small plots over steps, ages, and where device-seconds went."""
    summary = run.summary
    ages = sorted(summary.totals.age_counts.items())
    rows = [row for row in summary.ledger.rows if row.device_s > 0.0]
    return {
        "steps": [{"title": one.title, "x": list(one.steps), "y": _numbers(np.array(one.values))} for one in run_tables.series(summary)],
        "ages": {"x": [age for age, _ in ages], "y": [count for _, count in ages]},
        "costs": {"x": [row.device_s for row in rows], "y": [printable(costs.name_of(row)) for row in rows]},
        "drift": summary.kv.plots(),
    }


def _points(curve: Curve) -> dict[str, list[float]]:
    return {"x": _numbers(curve.compute), "y": _numbers(curve.reward)}


def _numbers(values: FloatArray | None) -> list[float]:
    """Numbers short enough for a page, exact enough for every zoom."""
    return [] if values is None else [float(f"{value:.{_SIGNIFICANT_DIGITS}g}") for value in values]


def _printable(value: Any) -> Any:
    """What a template prints: foreign text without characters that reverse the reading order; markup of our own as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _asset(name: str) -> Markup:
    """A file of this package, to stand in the page as it is."""
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))


def _policy_hash(script: str) -> Markup:
    """The source expression that admits exactly this inline script (Content Security Policy level 2)."""
    digest = hashlib.sha256(script.encode()).digest()
    return Markup("'sha256-{}'").format(base64.b64encode(digest).decode())


def _check_place(path: Path) -> None:
    """Raise where no report may be written."""
    try:
        if path.is_dir():
            raise OccupiedError("there is a folder of this name", where=str(path), remedy="name a file in it, for example report.html")
        if path.exists() and not _is_report(path):
            raise OccupiedError(
                "this is no report of scalerl, so it was not overwritten", where=str(path), remedy="choose another file name"
            )
        if path.suffix.lower() not in _SUFFIXES:
            raise UsageError(f"no page is written as '{path.suffix}'", where=str(path), remedy="let the file's name end in .html")
    except OSError as error:
        raise ScalerlError(
            f"no report can be put there ({error.strerror or error})", where=str(path), remedy="choose another name"
        ) from None


def _is_report(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _MARK in file.read(_MARK_WITHIN_BYTES)
