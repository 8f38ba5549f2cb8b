"""Fit the law to training logs: the ceiling, how well it is known, and forecasts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from scalerl.cli._curve_options import CurveOptions, takes_curve_options
from scalerl.cli.report import write_report
from scalerl.importers import list_columns
from scalerl.reports import console_for, print_fits, print_listing, to_json

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
@takes_curve_options
def fit(
    options: CurveOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    only_list: Annotated[bool, typer.Option("--list", help="Only list what the logs offer, and what would be chosen.")] = False,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Write the HTML report too.")] = None,
) -> None:
    """Print the fits of `options` and leave with 4 where nothing could be answered."""
    if only_list:
        for log in options.logs:
            print_listing(list_columns(log, choice=options.choice), console_for(sys.stdout), name=str(log))
        return
    fits = options.fits()
    if report is not None:
        write_report(fits, report, title=options.title())
    if as_json:
        print(to_json(fits))
    else:
        print_fits(fits, console_for(sys.stdout))
    raise typer.Exit(options.exit_code(fits))
