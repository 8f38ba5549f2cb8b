"""Checkpoints: whole or not there, the latest usable one is found, old ones go."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from scalerl.core.errors import ScalerlError
from scalerl.pipeline.orchestrator import LoopState
from scalerl.recipes.recipe import Checkpoints
from scalerl.runs.checkpoints import CheckpointStore


def saved(store: CheckpointStore, step: int, *, seq: int | None = None) -> None:
    (store.begin(step) / "model.safetensors").write_bytes(b"weights of %d" % step)
    store.commit(step, msgspec.json.encode(LoopState(step=step, seq=step * 10 if seq is None else seq)))


def test_the_latest_is_found_with_its_state(tmp_path):
    store = CheckpointStore(tmp_path, Checkpoints())
    assert store.latest(next_seq=100) is None
    saved(store, 1)
    saved(store, 2)
    latest = store.latest(next_seq=100)
    assert latest is not None
    assert latest.state.step == 2
    assert (latest.path / "model.safetensors").read_bytes() == b"weights of 2"


def test_a_checkpoint_ahead_of_its_log_or_damaged_is_passed_over(tmp_path):
    store = CheckpointStore(tmp_path, Checkpoints(keep_last=3))
    for step in (1, 2, 3):
        saved(store, step)
    (store.folder / "step-000002" / "loop.json").write_bytes(b"{")
    latest = store.latest(next_seq=30)
    assert latest is not None
    assert latest.state.step == 1


def test_what_was_begun_and_not_committed_does_not_exist_and_is_swept(tmp_path):
    store = CheckpointStore(tmp_path, Checkpoints())
    saved(store, 1)
    (store.begin(2) / "model.safetensors").write_bytes(b"half")
    assert store.steps() == [1]
    saved(CheckpointStore(tmp_path, Checkpoints()), 3)
    assert sorted(path.name for path in store.folder.iterdir()) == ["step-000001", "step-000003"]


def test_the_last_ones_and_the_chosen_ones_stay(tmp_path):
    store = CheckpointStore(tmp_path, Checkpoints(keep_last=2, keep_every_steps=4))
    for step in range(1, 11):
        saved(store, step)
    assert store.steps() == [4, 8, 9, 10]


def test_a_kill_while_an_old_one_is_removed_leaves_no_half_of_it(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, Checkpoints(keep_last=1))
    saved(store, 1)
    real = shutil.rmtree

    def killed(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        saved(store, 2)
    monkeypatch.setattr(shutil, "rmtree", real)
    assert store.steps() == [2]
    saved(store, 3)
    assert [path.name for path in store.folder.iterdir()] == ["step-000003"]


def test_what_others_hide_in_the_folder_is_left_alone(tmp_path):
    store = CheckpointStore(tmp_path, Checkpoints(keep_last=1))
    store.folder.mkdir()
    (store.folder / ".DS_Store").write_bytes(b"a file browser's")
    saved(store, 1)
    saved(store, 2)
    assert sorted(path.name for path in store.folder.iterdir()) == [".DS_Store", "step-000002"]


def test_a_step_that_comes_again_replaces_its_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path, Checkpoints())
    saved(store, 5, seq=50)
    saved(store, 5, seq=70)
    latest = store.latest(next_seq=100)
    assert latest is not None
    assert latest.state.seq == 70
    assert [path.name for path in store.folder.iterdir()] == ["step-000005"]


@pytest.mark.parametrize("keep_last", [1, 2])
def test_one_that_a_resume_has_passed_over_does_not_outlive_those_that_come_after(tmp_path, keep_last):
    store = CheckpointStore(tmp_path, Checkpoints(keep_last=keep_last, keep_every_steps=5))
    saved(store, 10, seq=1000)
    assert store.latest(next_seq=50) is None, "it is ahead of its log"
    saved(store, 2, seq=60)
    latest = store.latest(next_seq=2000)
    assert latest is not None
    assert latest.state.step == 2
    assert store.steps() == [2]


def test_the_log_is_durable_before_the_checkpoint_is_there(tmp_path):
    store = CheckpointStore(tmp_path, Checkpoints())
    seen = []
    store.before_commit = (lambda: seen.append(store.steps()),)
    saved(store, 1)
    assert seen == [[]]


def test_a_full_disk_is_one_sentence_and_the_older_checkpoint_stays(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, Checkpoints())
    saved(store, 1)

    def full(*arguments: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(ScalerlError, match=r"cannot be written \(No space left on device\); free disk space, then resume the run"):
        saved(store, 2)
    assert store.steps() == [1]
