"""Write the fits of training logs as one HTML file that works offline."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from scalerl.cli._curve_options import CurveOptions, takes_curve_options
from scalerl.core.clock import SystemClock
from scalerl.curves.result import Fit
from scalerl.reports import console_for, write_html

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
@takes_curve_options
def report(
    options: CurveOptions,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="Where to write; an older report there is replaced.")],
    title: Annotated[str | None, typer.Option(help="Heading of the page.", show_default=False)] = None,
) -> None:
    """Write the report of `options` and leave with 4 where nothing could be answered."""
    fits = options.fits()
    write_report(fits, out, title=title or options.title())
    raise typer.Exit(options.exit_code(fits))


def write_report(fits: Sequence[Fit], path: Path, *, title: str) -> None:
    """Write the HTML report, dated today in UTC, and say so on stderr.

    Raises:
        OccupiedError: something else than a report lies at `path`.
        ScalerlError: the file cannot be written.
    """
    write_html(fits, path, title=title, written=datetime.fromtimestamp(SystemClock().now_s(), tz=UTC).date())
    console_for(sys.stderr).print(f"wrote {path}", markup=False, soft_wrap=True)
