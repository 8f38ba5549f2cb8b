"""Report on runs and training logs: an HTML file that works offline, and for runs the whole story on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from scalerl.cli._curve_options import CurveOptions, takes_curve_options
from scalerl.core.clock import SystemClock
from scalerl.core.errors import UsageError
from scalerl.curves.comparison import Comparison
from scalerl.curves.result import Fit
from scalerl.reports import RunReport, console_for, print_fits, print_run, to_json, write_html
from scalerl.runs import RunDirectory

app = typer.Typer(add_completion=False)

REPORT_FILE = "report.html"
"""Where the report of a run goes, in its folder, unless another place is named."""


@app.command(help=__doc__)
@takes_curve_options
def report(
    options: CurveOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE.html", help=f"Where to write; of one run RUN/{REPORT_FILE} if left out. Replaces an older report."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the terminal's report.")] = False,
) -> None:
    """Write the report of `options` and leave with 4 where nothing could be answered.

    Of a run there is always something to tell: without `--strict` a ceiling that its points do not bound yet is no failure.
    """
    fits = options.fits()
    place = out or _place_of(options.logs)
    runs = runs_among(options.logs, fits)
    write_report(fits, place, title=title or options.title(), runs=runs)
    if as_json:
        print(to_json(fits, runs=runs))
    elif runs:
        print_runs(runs, fits)
    raise typer.Exit(0 if runs and not options.strict else options.exit_code(fits))


def runs_among(logs: Sequence[Path], fits: Sequence[Fit]) -> list[RunReport]:
    """The reports of those `logs` that are run directories of our own, each with the fits that are of it."""
    return [RunReport.of(RunDirectory.open(log), [fit for fit in fits if fit.curve.source == str(log)]) for log in logs if is_run(log)]


def print_runs(runs: Sequence[RunReport], fits: Sequence[Fit]) -> None:
    """Tell `runs` on stdout, and then every curve."""
    console = console_for(sys.stdout)
    for run in runs:
        print_run(run, console)
    print_fits(fits, console)


def is_run(log: Path) -> bool:
    """Whether a log is a run directory of our own."""
    return RunDirectory(log).manifest_path.is_file()


def write_report(
    fits: Sequence[Fit], path: Path, *, title: str, runs: Sequence[RunReport] = (), compared: Sequence[Comparison] = ()
) -> None:
    """Write the HTML report, dated today in UTC, and say so on stderr.

    Raises:
        OccupiedError: something else than a report lies at `path`.
        ScalerlError: the file cannot be written.
    """
    written = datetime.fromtimestamp(SystemClock().now_s(), tz=UTC).date()
    write_html(fits, path, title=title, written=written, runs=runs, compared=compared)
    say_written(path)


def say_written(path: Path) -> None:
    """Say on stderr that `path` was written."""
    console_for(sys.stderr).print(f"wrote {path}", markup=False, soft_wrap=True)


def _place_of(logs: Sequence[Path]) -> Path:
    if len(logs) == 1 and is_run(logs[0]):
        return logs[0] / REPORT_FILE
    raise UsageError("it is not said where to write", where="--out", remedy="give --out FILE.html")
