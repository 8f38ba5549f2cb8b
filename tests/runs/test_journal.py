"""The journal: alarms and budgets go on after a resume as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

from scalerl.accounting.alarms import Alarms, Truncation
from scalerl.core.clock import ManualClock
from scalerl.core.log_writer import LogWriter
from scalerl.recipes.recipe import Budget
from scalerl.records.events import Alarmed, CheckpointStarted, Event, GroupFinished, Resumed, RunStarted, StepFinished
from scalerl.runs.directory import RunDirectory
from scalerl.runs.journal import RunJournal

ALARMS = Alarms(window_steps=3, truncation=Truncation(action="stop"))


def step(number: int) -> tuple[Event, Event]:
    """A step all of whose completions are cut off."""
    columns = {"num_tokens": (9, 9), "values": (0.0, 0.0), "passed": (False, False), "finished": (False, False)}
    group = GroupFinished(
        group=number, prompt_id=f"p{number}", epoch=0, task="chain", first_versions=(0, 0), last_versions=(0, 0), **columns
    )
    return group, StepFinished(step=number, version=number, trained=(number,))


def events(folder: Path) -> list[Event]:
    return [entry.event for entry in RunDirectory(folder).events()]


def lived(folder: Path, *told: Event) -> RunJournal:
    """A journal that told these, and was then killed."""
    log = LogWriter[Event](folder / "events.jsonl", Event, clock=ManualClock())
    living = RunJournal(log, budget=Budget(steps=100), alarms=ALARMS)
    for entry in RunDirectory(folder).events():
        living.replay(entry)
    for event in told:
        living.append(event)
    log.close()
    return living


def test_an_alarm_that_stops_the_run_still_stops_it_after_a_kill_between_the_checkpoint_and_the_end(tmp_path):
    start = RunStarted(recipe_hash="abc", num_devices=1)
    before = lived(tmp_path, start, *step(1), *step(2), *step(3), CheckpointStarted(step=3))
    assert before.ends(3) == "the alarm truncation: 1, limit 0.1"
    captured = len(events(tmp_path)) - 1
    assert lived(tmp_path, Resumed(from_seq=captured)).ends(3) == before.ends(3)


def test_a_resumed_run_raises_the_alarms_of_the_undisturbed_one(tmp_path):
    start = RunStarted(recipe_hash="abc", num_devices=1)
    lived(tmp_path, start, *step(1), CheckpointStarted(step=1), *step(2))
    resumed = lived(tmp_path, Resumed(from_seq=3), *step(2))
    assert resumed.ends(2) is None
    resumed = lived(tmp_path, *step(3))
    assert resumed.ends(3) is not None
    assert [event.step for event in events(tmp_path) if isinstance(event, Alarmed)] == [3]


def test_an_alarm_that_a_resume_takes_back_does_not_stop_the_run(tmp_path):
    start = RunStarted(recipe_hash="abc", num_devices=1)
    assert lived(tmp_path, start, *step(1), CheckpointStarted(step=1), *step(2), *step(3)).ends(3) is not None
    assert lived(tmp_path, Resumed(from_seq=3)).ends(1) is None
