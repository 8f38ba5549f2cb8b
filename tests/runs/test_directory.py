"""The run directory: complete when it exists, never overwritten, read back as it was written."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from scalerl.core.clock import ManualClock
from scalerl.core.errors import DataError, OccupiedError, RecipeError, ScalerlError, UsageError
from scalerl.recipes import resolve
from scalerl.records.events import RunEnded, RunStarted
from scalerl.runs import RunDirectory


@pytest.fixture
def recipe():
    return resolve("scalerl", overrides=["seed=3"])


@pytest.fixture
def run(tmp_path, recipe):
    return RunDirectory.create(tmp_path / "runs" / "first", recipe, clock=ManualClock(1_700_000_000.0))


def test_a_run_is_read_back_as_it_was_created(run, recipe):
    again = RunDirectory.open(run.path)
    assert again.recipe == recipe
    assert again.manifest == run.manifest
    assert (again.manifest.recipe, again.manifest.recipe_hash, again.manifest.seed) == ("scalerl", recipe.hash, 3)
    assert again.manifest.created_s == 1_700_000_000.0
    assert set(json.loads(run.manifest_path.read_text())["package_versions"]) >= {"numpy", "scipy"}


def test_events_go_in_and_come_out(run):
    with run.writer(clock=ManualClock(5.0)) as log:
        log.append(RunStarted(recipe_hash=run.recipe.hash, num_devices=2))
        log.append(RunEnded(reason="steps"))
    assert [type(entry.event) for entry in run.events()] == [RunStarted, RunEnded]
    assert [entry.event.reason for entry in run.events(start=1)] == ["steps"]


def test_a_folder_in_use_is_never_overwritten(run, recipe):
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    with pytest.raises(OccupiedError, match="first: the folder is in use; give another --out, or --resume"):
        RunDirectory.create(run.path, recipe, clock=ManualClock())
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, recipe):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScalerlError, match="the folder cannot be made"):
        RunDirectory.create(tmp_path / "file" / "run", recipe, clock=ManualClock())


def test_a_run_that_could_not_be_made_leaves_nothing(tmp_path, recipe, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ScalerlError, match="No space left"):
        RunDirectory.create(tmp_path / "run", recipe, clock=ManualClock())
    monkeypatch.undo()
    assert RunDirectory.create(tmp_path / "run", recipe, clock=ManualClock()).recipe == recipe


def test_a_run_killed_while_it_is_made_leaves_its_folder_free(tmp_path, recipe, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_):
        assert not (tmp_path / "run").exists()
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(Killed):
        RunDirectory.create(tmp_path / "run", recipe, clock=ManualClock())
    monkeypatch.undo()
    assert RunDirectory.create(tmp_path / "run", recipe, clock=ManualClock()).recipe == recipe
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_becomes_the_run_and_a_file_does_not(tmp_path, recipe):
    (tmp_path / "empty").mkdir()
    assert RunDirectory.create(tmp_path / "empty", recipe, clock=ManualClock()).recipe == recipe
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OccupiedError, match="the folder is in use; give another --out, or move away what lies there, which is no run"):
        RunDirectory.create(tmp_path / "file", recipe, clock=ManualClock())
    assert (tmp_path / "file").read_text() == "mine"


def test_what_is_no_run_is_told(tmp_path, run):
    with pytest.raises(UsageError, match=r"this is no run directory: it has no manifest\.json"):
        RunDirectory.open(tmp_path)
    run.manifest_path.write_text("{")
    with pytest.raises(DataError, match="the manifest cannot be read"):
        _ = RunDirectory.open(run.path).manifest
    run.recipe_path.write_text("seed = 'x'\n")
    with pytest.raises(RecipeError, match=r"recipe\.toml: "):
        _ = RunDirectory.open(run.path).recipe
