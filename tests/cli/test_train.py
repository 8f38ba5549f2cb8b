"""scalerl train: from the command line to a run directory, and what Ctrl-C does to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from scalerl.core.events import LogReader
from scalerl.records.events import EVENTS_FILE, Event, RunEnded, StepFinished
from tests.reliability.processes import check_gone
from tests.runs.small import SCALE, SETTINGS

ROOT = Path(__file__).parents[2]
INTERRUPTED = """
import os, signal, sys
from scalerl.cli.main import main
from scalerl.records.events import StepFinished
from scalerl.runs.journal import RunJournal

append, times = RunJournal.append, int(sys.argv.pop(1))

def interrupting(journal, event):
    entry = append(journal, event)
    if isinstance(event, StepFinished) and event.step == 2:
        for _ in range(times):
            os.killpg(0, signal.SIGINT)
    return entry

RunJournal.append = interrupting
main()
"""


def overridden(*more: str) -> list[str]:
    return ["--scale", str(SCALE), *(argument for setting in (*SETTINGS, *more) for argument in ("--set", setting))]


def scalerl(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scalerl.cli.main"] if code is None else [sys.executable, "-c", code]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT, start_new_session=True
    )


def events(folder: Path) -> list[Event]:
    return [entry.event for entry in LogReader[Event](folder / EVENTS_FILE, Event)]


def test_a_run_is_trained_and_told(tmp_path):
    folder = tmp_path / "run"
    done = scalerl("train", "scalerl", *overridden(), "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert "chain" in done.stdout
    assert "ended after step 6: the budget of steps is spent" in done.stderr
    assert "CPU-seconds over all processes" in done.stderr
    assert isinstance(events(folder)[-1], RunEnded)
    assert {path.name for path in folder.iterdir()} >= {
        "recipe.toml",
        "manifest.json",
        "events.jsonl",
        "metrics.jsonl",
        "rollouts",
        "checkpoints",
    }


def test_ctrl_c_once_finishes_the_step_and_saves(tmp_path):
    folder = tmp_path / "run"
    stopped = scalerl("1", "train", "scalerl", *overridden("runtime.type=processes"), "--out", str(folder), code=INTERRUPTED)
    assert stopped.returncode == 130
    assert f"scalerl: {folder}: stopped after step 2; go on with: scalerl train --resume --out {folder}" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert (folder / "checkpoints" / "step-000002").is_dir()
    other = scalerl("train", "magistral", "--resume", "--out", str(folder))
    assert (other.returncode, other.stderr) == (2, f"scalerl: {folder}: this is a run of the recipe 'scalerl'; leave the recipe out\n")
    resumed = scalerl("train", "scalerl", "--resume", "--out", str(folder))
    assert resumed.returncode == 0, resumed.stderr
    assert max(event.step for event in events(folder) if isinstance(event, StepFinished)) == 6


def test_ctrl_c_twice_stops_at_once_and_the_run_can_be_gone_on_with(tmp_path):
    folder = tmp_path / "run"
    stopped = scalerl("2", "train", "scalerl", *overridden("runtime.type=processes"), "--out", str(folder), code=INTERRUPTED)
    assert stopped.returncode == 130
    assert "stopped in the middle of step 3; go on with: scalerl train --resume" in stopped.stderr or "stopped after step" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert scalerl("train", "--resume", "--out", str(folder)).returncode == 0


@pytest.mark.parametrize("runtime", ["inline", "processes"])
def test_ctrl_c_while_the_base_is_made_stops_at_once_and_leaves_no_process(tmp_path, runtime):
    folder = tmp_path / "run"
    endless = overridden(f"runtime.type={runtime}", "warm_start.steps=1000000")
    command = [sys.executable, "-m", "scalerl.cli.main", "train", "scalerl", *endless, "--out", str(folder)]
    environment = os.environ | {"SCALERL_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment, start_new_session=True) as run:
        while not (folder / EVENTS_FILE).exists() or not (folder / EVENTS_FILE).stat().st_size:
            with suppress(subprocess.TimeoutExpired):
                assert run.wait(0.05) is None
        os.killpg(run.pid, signal.SIGINT)
        _, told = run.communicate(timeout=120)
    assert run.returncode == 130
    assert told.endswith(f"scalerl: {folder}: stopped before training began; go on with: scalerl train --resume --out {folder}\n")
    assert "Traceback" not in told
    check_gone(run.pid)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train"], "no recipe is named; name one, e.g. scalerl train scalerl, or give --resume --out DIR"),
        (["train", "scalarl"], "there is no recipe 'scalarl'; did you mean 'scalerl'?"),
        (["train", "--resume"], "it is not said which run to go on with; give --out DIR"),
        (["train", "src/scalerl/recipes/catalogue/magistral.toml", "--resume"], "runs/magistral: this is no run directory"),
        (["train", "--resume", "--out", "nowhere"], "nowhere: this is no run directory: it has no manifest.json; give the folder of a run"),
        (["train", "scalerl", "--resume", "--set", "seed=1"], "a run goes on with the recipe that it was started with"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, sentence):
    refused = scalerl(*arguments)
    assert refused.returncode == 2
    assert sentence in refused.stderr
    assert refused.stderr.count("\n") == 1
