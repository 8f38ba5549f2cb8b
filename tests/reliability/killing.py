"""Real runs under kill -9: killed at random moments, whole or one role of them, gone on with, and checked when they have ended.

    python -m tests.reliability.killing --kills 100 --seed 0

The moments are drawn from the seed: when the event log has grown by so much, and a fraction of a second later. After
each life no process and no shared memory is left, and every checkpoint loads; in the end each prompt of an epoch has been
dealt with once over the lineage that goes on, and each evaluation that fell due was made once.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
from safetensors.torch import load_file

from scalerl.models._policy import Policy
from scalerl.pipeline.evaluation import is_due
from scalerl.pipeline.orchestrator import LoopState
from scalerl.pipeline.simulation import lineage
from scalerl.records.events import EVENTS_FILE, Evaluated, Event, GroupFinished, Restarted, Resumed, RunEnded, StepFinished
from scalerl.runs import RunDirectory
from scalerl.runs.checkpoints import CHECKPOINTS_FOLDER, LOOP_FILE, checkpoints_in
from tests.reliability.processes import Life

SETTINGS = ("runtime.type=processes", "pipeline.k=8", "evaluation.every_steps=6", "checkpoints.every_steps=3", "warm_start.steps=40")
STEPS_PER_KILL = 6
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Kill:
    """When and whom."""

    whom: str
    """A role, or `all`."""
    grown_bytes: int
    """What the event log grows by before; a step writes some 4,000."""
    delay_s: float


def drawn(number: int, *, seed: int) -> list[Kill]:
    """Kills at random moments: each role as often as the whole run, now and then before anything was written."""
    dice = random.Random(seed)
    kills = []
    for whom in dice.sample(("generator", "trainer", "orchestrator", "all") * -(-number // 4), number):
        is_early = dice.random() < 0.15
        kills.append(Kill(whom, 0 if is_early else dice.randrange(20_000), dice.uniform(0.0, 3.0 if is_early else 0.3)))
    return kills


def survive(folder: Path, kills: list[Kill]) -> Counter[str]:
    """Start a run, kill it as told, and check it after every life and in the end; returns what happened, counted."""
    num_steps = STEPS_PER_KILL * (len(kills) + 2)
    in_memory = set(SHARED_MEMORY.iterdir())
    happened: Counter[str] = Counter()
    left = deque(kills)
    code: int | None = None
    while code != 0:
        is_undisturbed = not left
        life = Life(folder, *SETTINGS, f"budget.steps={num_steps}")
        happened["lives"] += 1
        while left and not life.has_ended:
            strike(life, left.popleft(), folder, happened)
        code = life.end()
        assert code == 0 or not is_undisturbed, life.told()
        assert set(SHARED_MEMORY.iterdir()) <= in_memory
        check_checkpoints(folder)
    assert not left, "the run ended before it was killed often enough"
    check_run(folder, num_steps)
    return happened


def strike(life: Life, kill: Kill, folder: Path, happened: Counter[str]) -> None:
    """Wait for the moment, kill, and count it if there was anybody to kill."""
    log = folder / EVENTS_FILE

    def size() -> int:
        return log.stat().st_size if log.exists() else 0

    size_then = size() + kill.grown_bytes
    life.wait_for(lambda: size() >= size_then)
    time.sleep(kill.delay_s)
    has_struck = life.kill(kill.whom)
    happened[kill.whom] += has_struck
    if has_struck and kill.whom != "generator":
        life.wait_for(lambda: False, timeout_s=60.0)


def check_checkpoints(folder: Path) -> None:
    """Every folder that is named as a checkpoint is one: model, optimizer and the loop's state load."""
    for checkpoint in checkpoints_in(folder / CHECKPOINTS_FOLDER).values():
        Policy.load(checkpoint, head="fp32", dtype="float32")
        load_file(checkpoint / "optimizer.safetensors")
        state = msgspec.json.decode((checkpoint / LOOP_FILE).read_bytes(), type=LoopState)
        assert checkpoint.name == f"step-{state.step:06d}"


def check_run(folder: Path, num_steps: int) -> None:
    """The lineage that went on is that of a run that was never killed."""
    run = RunDirectory.open(folder)
    events = [entry.event for entry in lineage(list(run.events()))]
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert [step.step for step in steps] == list(range(1, num_steps + 1))
    assert isinstance(events[-1], RunEnded)
    check_prompts(events, num_prompts=run.recipe.task.num_prompts)  # type: ignore[attr-defined]
    check_evaluations(events, steps, every_steps=run.recipe.evaluation.every_steps, early_growth=run.recipe.evaluation.early_growth)


def check_prompts(events: list[Event], *, num_prompts: int) -> None:
    """No prompt is dealt with twice in an epoch, and the first epoch, which leaves none out, is whole."""
    finished = {event.group: event for event in events if isinstance(event, GroupFinished)}
    steps = [event for event in events if isinstance(event, StepFinished)]
    settled = [
        group
        for step in steps
        for group in (*step.trained, *step.dropped, *step.failed, *(group for groups in step.filtered.values() for group in groups))
    ]
    visits = Counter((finished[group].epoch, finished[group].prompt_id) for group in settled)
    assert set(visits.values()) == {1}
    assert len([prompt for epoch, prompt in visits if epoch == 0]) == min(num_prompts, len(settled))


def check_evaluations(events: list[Event], steps: list[StepFinished], *, every_steps: int, early_growth: float) -> None:
    """Base and last version are evaluated, each version once, and one between each step at which that falls due and the next."""
    evaluated = [event.version for event in events if isinstance(event, Evaluated)]
    assert evaluated == sorted(set(evaluated))
    assert (evaluated[0], evaluated[-1]) == (0, steps[-1].version)
    due = [0, *(step.version for step in steps if is_due(step.step, every_steps=every_steps, early_growth=early_growth)), steps[-1].version]
    for version, following in pairwise(due):
        assert any(version <= known <= following for known in evaluated), f"no version from {version} to {following} was evaluated"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        happened = survive(run, drawn(arguments.kills, seed=arguments.seed))
        told = Counter(type(entry.event) for entry in RunDirectory.open(run).events())
    print({**happened, "resumed": told[Resumed], "restarted": told[Restarted], "seconds": round(time.monotonic() - started_s)})


if __name__ == "__main__":
    main()
