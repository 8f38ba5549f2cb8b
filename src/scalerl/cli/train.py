"""Train a recipe: every event, cost and completion is kept, and a killed run can be resumed."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Annotated

import typer

from scalerl.cli.report import REPORT_FILE, print_runs, runs_among, write_report
from scalerl.core.clock import SystemClock
from scalerl.core.errors import UsageError
from scalerl.curves import fit
from scalerl.importers import read_curves
from scalerl.recipes import Recipe, resolve
from scalerl.recipes.load import name_of
from scalerl.reports import console_for
from scalerl.reports.live import LiveDisplay
from scalerl.runs import RunDirectory
from scalerl.runs.training import Outcome, resume, train

app = typer.Typer(add_completion=False)


@app.command(name="train", help=__doc__)
def train_verb(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A name of the catalogue, or a TOML file.", show_default=False)
    ] = None,
    scale: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="What lies under the recipe; 'laptop' unless given.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change one setting; may be repeated.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="The run directory; runs/RECIPE unless given.", show_default=False)
    ] = None,
    resuming: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out from its latest checkpoint.")] = False,
) -> None:
    """Run a recipe or go on with a run, show how it does, and write its report."""
    if resuming:
        folder = _folder_to_resume(recipe, scale, overrides, out)
        resolved = RunDirectory.open(folder).recipe
        if recipe is not None and name_of(recipe) != resolved.name:
            raise UsageError(f"this is a run of the recipe '{resolved.name}'", where=str(folder), remedy="leave the recipe out")
    else:
        if recipe is None:
            raise UsageError("no recipe is named", remedy="name one, e.g. scalerl train scalerl, or give --resume --out DIR")
        resolved = resolve(recipe, scale=scale, overrides=overrides or ())
        folder = Path("runs") / resolved.name if out is None else out
    _run(resolved, folder, resuming=resuming).raise_if_stopped()


def _folder_to_resume(recipe: str | None, scale: str | None, overrides: list[str] | None, out: Path | None) -> Path:
    if scale is not None or overrides:
        raise UsageError("a run goes on with the recipe that it was started with", remedy="leave --scale and --set out")
    if out is None and recipe is None:
        raise UsageError("it is not said which run to go on with", remedy="give --out DIR")
    return Path("runs") / name_of(str(recipe)) if out is None else out


def _run(recipe: Recipe, folder: Path, *, resuming: bool) -> Outcome:
    """Train with a live display, then write the report and say what it took."""
    clock, console = SystemClock(), console_for(sys.stderr)
    started_s = clock.now_s()
    with LiveDisplay(console, budget=recipe.budget) as display:
        if resuming:
            outcome = resume(folder, observers=(display.update,), say=display.warn, clock=clock)
        else:
            outcome = train(recipe, folder, observers=(display.update,), say=display.warn, clock=clock)
    console.print(f"{folder}: ended after step {outcome.step}: {outcome.reason}", markup=False, soft_wrap=True)
    if outcome.is_complete:
        _report(folder)
    # Beside a wall time stands what else the machine was doing.
    took = f"{_cpu_s():.0f} CPU-seconds over all processes, {clock.now_s() - started_s:.0f} s at a load average of {os.getloadavg()[1]:.1f}"
    console.print(took, markup=False, soft_wrap=True)
    return outcome


def _report(folder: Path) -> None:
    """Write the run's report into its folder, and tell it on the terminal."""
    fits = [fit(curve) for curve in read_curves(folder)]
    runs = runs_among([folder], fits)
    write_report(fits, folder / REPORT_FILE, title=folder.name, runs=runs)
    print_runs(runs, fits)


def _cpu_s() -> float:
    """Processor time of this process and of those that it has started and outlived, in seconds."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
