"""A generator that dies in a real run: another one takes its place and nothing shows it but the log, as often as is allowed."""

from __future__ import annotations

import os
import signal
from multiprocessing import active_children
from pathlib import Path

import pytest

from scalerl.accounting.ledger import LedgerFold
from scalerl.core.errors import ScalerlError
from scalerl.records.cost import Activity
from scalerl.records.events import Evaluated, Restarted, RunEntry, StepFinished
from scalerl.runs import RunDirectory
from scalerl.runs.training import resume, train
from tests.runs.small import small_recipe


def kill_after(*steps: int):
    """An observer that kills the generator after these steps."""

    def observer(entry: RunEntry) -> None:
        if isinstance(entry.event, StepFinished) and entry.event.step in steps:
            for child in active_children():
                if child.name == "generator":
                    os.kill(child.pid or 0, signal.SIGKILL)

    return observer


def told(folder: Path) -> tuple[list[object], list[object]]:
    """What the steps and the evaluations of a run say, but for the numbers of groups: some may have been begun in vain."""
    events = [entry.event for entry in RunDirectory.open(folder).events()]
    steps = {event.step: (len(event.trained), event.metrics) for event in events if isinstance(event, StepFinished)}
    evaluations = {event.version: event.num_passed for event in events if isinstance(event, Evaluated)}
    return [*steps.items()], [*evaluations.items()]


@pytest.fixture(scope="module")
def undisturbed(bases, tmp_path_factory):
    return train(small_recipe(), tmp_path_factory.mktemp("runs") / "undisturbed").folder


def test_a_synchronous_run_whose_generator_is_replaced_equals_the_undisturbed_one(undisturbed, tmp_path):
    """Killed while it evaluates, with nothing in flight, and while a batch is in flight: draws do not depend on the process."""
    said: list[str] = []
    folder = tmp_path / "run"
    recipe = small_recipe("runtime.type=processes")
    assert train(recipe, folder, observers=(kill_after(2, 3),), say=said.append).step == 6
    assert told(folder) == told(undisturbed)
    assert said == ["The generator died (killed by SIGKILL): another one was started."] * 2

    entries = list(RunDirectory.open(folder).events())
    restarts = [entry.event for entry in entries if isinstance(entry.event, Restarted)]
    assert [event.reason for event in restarts] == ["the generator died (killed by SIGKILL)"] * 2
    fold = LedgerFold()
    for entry in entries:
        fold.update(entry)
    ledger = fold.ledger()
    (lost,) = ledger.of(Activity.LOST)
    assert 0.0 < lost.device_s == ledger.wasted_device_s
    assert abs(ledger.unbooked_share or 0.0) <= 0.02


@pytest.mark.slow
def test_one_death_too_many_ends_the_run_with_a_checkpoint_of_its_last_step(undisturbed, tmp_path):
    folder = tmp_path / "run"
    recipe = small_recipe("runtime={ type = 'processes', restarts = 1 }")
    with pytest.raises(ScalerlError, match=r"runtime\.restarts: the generator died \(killed by SIGKILL\), after 1 restarts; go on from"):
        train(recipe, folder, observers=(kill_after(1, 5),))
    assert (folder / "checkpoints" / "step-000005").is_dir()
    assert active_children() == []
    assert resume(folder).step == 6
    assert told(folder) == told(undisturbed)
