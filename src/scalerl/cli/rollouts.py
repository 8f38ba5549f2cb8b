"""Read the completions of a run with their rewards."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from scalerl.core.plain import finite
from scalerl.core.units import counted
from scalerl.reports import console_for
from scalerl.reports.rollouts import print_rollouts
from scalerl.runs import RunDirectory
from scalerl.runs.rollouts import Rollouts

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def rollouts(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, whether it is over or goes on.", show_default=False)],
    step: Annotated[
        int | None, typer.Option(metavar="N", help="Only what this step dealt with; the latest if no prompt is named.", show_default=False)
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="ID", help="Only completions of this prompt, of every step.", show_default=False)
    ] = None,
    passed: Annotated[
        bool | None, typer.Option("--passed/--failed", help="Only those that passed, or only those that did not.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Most completions to show.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Print the completions of `run` that were asked for, and say how many groups are not kept."""
    directory = RunDirectory.open(run)
    found = Rollouts.of(directory)
    kept = found.kept()
    if step is None and prompt is None:
        step = max((fate.step for group in kept if (fate := found.fates[group]).step is not None), default=None)
    shown = list(islice(found.select(step=step, prompt=prompt, passed=passed), limit))
    if as_json:
        rows = [{**rollout.to_dict(), "step": fate.step, "became": fate.became} for rollout, fate in shown]
        print(json.dumps(finite({"rollouts": rows, "groups": len(found.fates), "groups_kept": len(kept)}), indent=2, allow_nan=False))
        return
    print_rollouts(shown, console_for(sys.stdout), phrase=directory.recipe.length.control.insertion)
    kept_of = f"of {counted(len(found.fates), 'group')} in the events, the completions of {len(kept)} are kept"
    if not shown:
        kept_of += f", of steps up to {max((fate.step or 0 for fate in found.fates.values()), default=0)}"
    console_for(sys.stderr).print(f"{counted(len(shown), 'completion')} shown; {kept_of}", markup=False, soft_wrap=True)
