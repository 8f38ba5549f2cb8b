"""Evaluate a checkpoint on a task: mean@n, pass@k and maj@k with intervals."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from scalerl.core.clock import SystemClock
from scalerl.core.errors import UsageError
from scalerl.core.plain import finite
from scalerl.core.units import counted
from scalerl.reports import console_for, print_tables
from scalerl.reports.evaluation import evaluation_tables
from scalerl.runs.evaluate import evaluate, folder_of, recipe_for

app = typer.Typer(add_completion=False)


@app.command(name="eval", help=__doc__)
def eval_verb(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="A model folder, or a run for its latest one.", show_default=False)
    ],
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Name of the task; a run's own if left out.", show_default=False)
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Completions of each prompt; the run's own if left out.", show_default=False)
    ] = None,
    k: Annotated[
        str | None, typer.Option("--k", metavar="K,...", help="For pass@k and maj@k; all samples if left out.", show_default=False)
    ] = None,
    temperature: Annotated[float | None, typer.Option(metavar="T", help="As in training if left out.", show_default=False)] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first held-out prompts; all if left out.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="One setting, e.g. task.dataset=...; repeat for more.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Evaluate `checkpoint` and print what it reaches."""
    folder = folder_of(checkpoint)
    settings = [*(overrides or []), *([] if temperature is None else [f"engine.temperature={temperature}"])]
    recipe = recipe_for(folder, task=task, overrides=settings)
    num_samples = recipe.evaluation.samples if samples is None else samples
    num_prompts = min(recipe.task.num_held_out, limit or recipe.task.num_held_out)
    ks = _ks(k, num_samples)
    talk = f"{folder}: {counted(num_samples, 'completion')} of {counted(num_prompts, 'prompt')} of '{recipe.task.name()}'"
    console_for(sys.stderr).print(talk, markup=False, soft_wrap=True)
    evaluation = evaluate(folder, recipe, samples=num_samples, ks=ks, limit=limit, clock=SystemClock())
    if as_json:
        print(json.dumps(finite({"checkpoint": str(folder), **evaluation.to_dict()}), indent=2, allow_nan=False))
    else:
        print_tables(evaluation_tables(evaluation), console_for(sys.stdout))


def _ks(text: str | None, num_samples: int) -> list[int]:
    if text is None:
        return [num_samples] if num_samples > 1 else []
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"'{text}' is no list of numbers from 1 on", where="--k", remedy="write for example --k 1,4")
    return [int(part) for part in parts]
