"""Tell where a run's time, FLOPs, tokens and dollars went."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from scalerl.accounting.ledger import LedgerFold
from scalerl.core.plain import finite
from scalerl.reports import console_for, print_tables
from scalerl.reports.costs import costs_of, ledger_table
from scalerl.runs import RunDirectory

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def cost(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, whether it is over or goes on.", show_default=False)],
    by: Annotated[
        Literal["activity", "device"], typer.Option(help="What makes a row: an activity, or an activity of one device.")
    ] = "activity",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Print the ledger of `run` and what follows from it."""
    fold = LedgerFold()
    for entry in RunDirectory.open(run).events():
        fold.update(entry)
    ledger = fold.ledger(by=by)
    if as_json:
        print(json.dumps(finite(ledger.to_dict()), indent=2, allow_nan=False))
    else:
        print_tables([ledger_table(ledger), costs_of(ledger)], console_for(sys.stdout))
