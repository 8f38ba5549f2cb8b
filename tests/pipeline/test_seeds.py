"""The loop in 2,000 drawn scenarios: nothing is lost, nothing trained twice, nothing older than k, whatever happens."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from scalerl.pipeline.simulation import Ending, Report, drawn, failure, simulate
from scalerl.records.events import Evaluated, Restarted, StepFinished

BLOCK = 50


@pytest.mark.parametrize("first", range(0, 2000, BLOCK))
def test_whatever_happens_no_invariant_breaks(first: int) -> None:
    for seed in range(first, first + BLOCK):
        broken = failure(drawn(seed))
        assert broken is None, f"{broken}; replay it with: python -m scalerl.pipeline.simulation {seed}"


def test_the_drawn_scenarios_do_what_they_are_for() -> None:
    """Everything that can happen does, within the first few."""
    reports = [Report() for _ in range(150)]
    for seed, report in enumerate(reports):
        failure(drawn(seed), report=report)
    events = [entry.event for report in reports for entry in report.events]
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert {name for step in steps for name in step.filtered} == {"zero_variance", "overlong", "staleness"}
    assert any(step.dropped for step in steps)
    assert any(step.failed for step in steps)
    assert any(not step.trained for step in steps)
    assert any(event.blocked_s == 0.0 for event in events if isinstance(event, Evaluated) and event.task == "task-0")
    assert any(event.groups for event in events if isinstance(event, Restarted))
    endings = Counter(ending.partition(";")[0] for report in reports for ending in report.endings)
    killed = {str(ending) for ending in Ending} - {str(Ending.ROLE_FAILED), str(Ending.DISK_FULL)}
    sentences = {"a role died", "the generator died too often", "the checkpoint cannot be written (No space left on device)"}
    assert set(endings) == killed | sentences
    assert min(endings.values()) >= 5
    assert {report.reason for report in reports} >= {"steps", ""}


def test_a_seed_replays_exactly_in_another_process() -> None:
    """Neither the hashes of strings nor what ran before changes anything."""
    replay = [sys.executable, "-m", "scalerl.pipeline.simulation", "11"]
    told = [subprocess.run(replay, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout for seed in "12"]
    assert told[0] == told[1]
    assert told[0].splitlines()[-1] == "nothing breaks; the run ended: steps"
    assert len([line for line in told[0].splitlines() if " s  " in line]) == len(simulate(drawn(11)).events)
