"""Fit the law to training logs: the ceiling, how well it is known, and forecasts."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from scalerl.cli._curve_options import CurveOptions, amount, listed, takes_curve_options
from scalerl.cli.report import say_written, write_report
from scalerl.core.errors import UsageError
from scalerl.curves.backtest import backtest
from scalerl.curves.decisions import decided
from scalerl.curves.result import Fit
from scalerl.importers import list_columns
from scalerl.reports import console_for, print_fits, print_listing, to_json, write_figure

app = typer.Typer(add_completion=False)

_TARGETS = "0.6,0.65"


@app.command(help=__doc__)
@takes_curve_options
def fit(
    options: CurveOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
    only_list: Annotated[bool, typer.Option("--list", help="Only list what the logs offer, and what would be chosen.")] = False,
    reach: Annotated[
        str | None, typer.Option("--reach", "--target", metavar="R,...", help="Rewards: will they be reached, and by which compute?")
    ] = None,
    budget: Annotated[str | None, typer.Option(metavar="C", help="Compute of the whole run: stop, continue or scale?")] = None,
    backtests: Annotated[bool, typer.Option("--backtest", help="What would shorter runs have predicted?")] = False,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Write the HTML report too.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a figure too: .png, .svg or .pdf.")] = None,
) -> None:
    """Print the fits of `options` and leave with 4 where nothing could be answered."""
    if only_list:
        listings = {str(log): list_columns(log, choice=options.choice) for log in options.logs}
        if as_json:
            print(json.dumps({log: asdict(listing) for log, listing in listings.items()}))
            return
        for log, listing in listings.items():
            print_listing(listing, console_for(sys.stdout), name=log)
        return
    fits = [_with_decisions(answer, reach=reach, budget=budget) for answer in options.fits()]
    if backtests:
        fits = [replace(answer, backtest=backtest(answer)) for answer in fits]
    if report is not None:
        write_report(fits, report, title=options.title())
    if plot is not None:
        write_figure(fits, plot)
        say_written(plot)
    if as_json:
        print(to_json(fits))
    else:
        print_fits(fits, console_for(sys.stdout))
    raise typer.Exit(options.exit_code(fits))


def _with_decisions(answer: Fit, *, reach: str | None, budget: str | None) -> Fit:
    """`answer` with what was asked of it beside the fit."""
    if reach is None and budget is None:
        return answer
    return decided(
        answer,
        targets=tuple(map(_reward, listed(reach, flag="--reach", example=_TARGETS))),
        budget=None if budget is None else amount(budget, answer.curve.axis, flag="--budget"),
    )


def _reward(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"'{text}' is no reward", where="--reach", remedy=f"write numbers, for example {_TARGETS}") from None
