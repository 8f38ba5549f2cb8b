"""What each recipe of the catalogue reaches on the embedded task: A and B with their intervals, and what its parts cost.

    python benchmarks/catalogue.py [--steps 400] [--seeds 3] [--jobs 2] [--minutes M] [--out runs/catalogue]

One run for each recipe and seed, everything else as the laptop scale has it. Finished runs are not repeated and broken ones
go on from their last checkpoint, so that the same command, called again, does what is left; after `--minutes` no new run
begins. Each run is one process: with `--jobs 2` two cores have one each, and none waits for another role.

Prints a table of the runs there are, and a line for each recipe that pools its seeds. The last line is {runs, complete,
steps_not_finite, critic_share}; the exit status is 1 where a run is missing or a step was not finite.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

# One thread per process is fastest for small arrays; NumPy reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from _report import Requirement, finish

from scalerl import Arm, Recipe, RunDirectory, fit, read_curves, resolve, resume, train
from scalerl.core.errors import OccupiedError, UsageError
from scalerl.core.units import FLOPS, format_number
from scalerl.curves import Fit
from scalerl.recipes import recipe_names
from scalerl.records.cost import Activity
from scalerl.records.events import StepFinished


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the table."""

    recipe: str
    seed: int
    num_steps: int
    folder: Path

    @property
    def settings(self) -> Recipe:
        """The recipe as it is run."""
        overrides = [f"seed={self.seed}", f"budget.steps={self.num_steps}", "runtime.type=inline"]
        return resolve(self.recipe, overrides=overrides)

    @property
    def is_over(self) -> bool:
        """Whether it has taken all its steps.

        Raises:
            UsageError: the folder holds a run of other settings.
        """
        if not self.folder.exists():
            return False
        run = RunDirectory.open(self.folder)
        if run.recipe.hash != self.settings.hash:
            raise UsageError("a run of other settings is there", where=str(self.folder), remedy="choose another --out")
        return any(isinstance(entry.event, StepFinished) and entry.event.step == self.num_steps for entry in run.events())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    answer: Fit
    last_reward: float
    num_lost: int
    """Steps whose loss or gradient was not finite."""
    training_shares: dict[str, float]
    """Share of the run's FLOPs in each detail of training: the policy's own is ''."""

    @staticmethod
    def of(cell: Cell) -> Outcome:
        """Read from its log."""
        (curve,) = read_curves(cell.folder)
        flops: dict[tuple[str, str], float] = {}
        num_lost = 0
        for entry in RunDirectory.open(cell.folder).events():
            if isinstance(entry.event, StepFinished):
                num_lost += entry.event.metrics.get("skipped") == 1.0
            for cost in getattr(entry.event, "costs", ()):
                kind = (str(cost.activity), cost.detail)
                flops[kind] = flops.get(kind, 0.0) + cost.flops + cost.overhead_flops
        total = sum(amount for (activity, _), amount in flops.items() if activity not in (Activity.WARM_START, Activity.EVALUATE))
        shares = {detail: amount / total for (activity, detail), amount in flops.items() if activity == Activity.TRAIN}
        return Outcome(fit(curve), float(curve.reward[-1]), num_lost, shares)


def run(cell: Cell, *, deadline_s: float) -> None:
    """Begin or go on, unless time is up or there is nothing to do."""
    if time.time() > deadline_s or cell.is_over:
        return
    started_s = time.process_time()
    try:
        if cell.folder.exists():
            resume(cell.folder)
        else:
            train(cell.settings, cell.folder)
    except OccupiedError:
        print(f"{cell.folder.name}: another process is at it", file=sys.stderr, flush=True)
        return
    print(f"{cell.folder.name}: {time.process_time() - started_s:.0f} CPU-s", file=sys.stderr, flush=True)


def row_of(cell: Cell, outcome: Outcome) -> str:
    """A line of the table."""
    A, B = (outcome.answer.parameters.get(name) for name in ("A", "B"))
    cells = ["-" if estimate is None else "n.i." if estimate.value is None else format_number(estimate.value) for estimate in (A, B)]
    spans = ["" if one is None else f"{format_number(one.low)}-{format_number(one.high)}" for one in (A, B)]
    critic = outcome.training_shares.get("critic", 0.0)
    return (
        f"{cell.recipe:14} {cell.seed:>4}  {outcome.answer.status:15} {outcome.last_reward:>6.3f}"
        f"  {cells[0]:>6} {spans[0]:13} {cells[1]:>6} {spans[1]:13} {critic:>6.1%}"
    )


def pooled(name: str, answers: Sequence[Fit]) -> str:
    """The recipe's ceiling over its seeds."""
    arm = Arm(name, tuple(answers))
    if not arm.answered:
        return f"{name:14} no run of it has a ceiling"
    low, median, high = np.quantile(arm.A, [0.05, 0.5, 0.95])
    return f"{name:14} A {median:.3f} ({low:.3f}-{high:.3f}) over {len(arm.answered)} of {len(answers)} runs"


def main() -> int:
    """Run what is left, print, judge."""
    parser = argparse.ArgumentParser(description="A and B of every recipe of the catalogue on the embedded task.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no new run begins")
    parser.add_argument("--out", type=Path, default=Path("runs/catalogue"))
    arguments = parser.parse_args()
    cells = [
        Cell(recipe, seed, arguments.steps, arguments.out / f"{recipe}-{seed}")
        for seed in range(arguments.seeds)
        for recipe in sorted(recipe_names())
    ]
    work = partial(run, deadline_s=time.time() + 60.0 * arguments.minutes)
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, maxtasksperchild=1) as pool:
        pool.map(work, cells, chunksize=1)

    outcomes = {cell: Outcome.of(cell) for cell in sorted(cells, key=lambda cell: (cell.recipe, cell.seed)) if cell.is_over}
    print(f"{'recipe':14} seed  {'status':15} {'last':>6}  {'A':>6} {'90 %':13} {'B':>6} {'90 %':13} critic   (compute in {FLOPS.unit})")
    for cell, outcome in outcomes.items():
        print(row_of(cell, outcome))
    print()
    for recipe in sorted({cell.recipe for cell in outcomes}):
        print(pooled(recipe, [outcome.answer for cell, outcome in outcomes.items() if cell.recipe == recipe]))
    shares = [outcome.training_shares["critic"] for outcome in outcomes.values() if "critic" in outcome.training_shares]
    figures = {
        "runs": len(cells),
        "complete": len(outcomes),
        "steps_not_finite": sum(outcome.num_lost for outcome in outcomes.values()),
        "critic_share": float(np.mean(shares)) if shares else None,
    }
    requirements = [
        Requirement("runs that are complete", len(outcomes), least=len(cells)),
        Requirement("steps that were not finite", figures["steps_not_finite"], most=0),
    ]
    return finish(requirements, figures)


if __name__ == "__main__":
    sys.exit(main())
