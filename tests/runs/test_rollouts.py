"""Rollouts: what was sampled comes back token by token, the lineage's attempt counts, and a crash loses the open part only."""

import errno
import os

import numpy as np
import pyarrow.parquet as pq
import pytest

from scalerl.core.errors import CorruptLogError, ScalerlError
from scalerl.core.events import Entry
from scalerl.records.events import GroupFinished, Resumed, StepFinished
from scalerl.records.rollout import Completion, Group, Outcome, Prompt, Score
from scalerl.runs import rollouts
from scalerl.runs.rollouts import Rollouts, RolloutWriter
from scalerl.testing.synthetic_run import write_run


def group(number, *, epoch=0, score=None):
    completion = Completion(
        index=0,
        token_ids=np.array([5, 6, 7], np.int32),
        log_probs=np.array([-0.5, 0.0, -1.25], np.float32),
        trainable=np.array([True, False, True]),
        version_runs=((3, 1), (4, 2)),
        finished=True,
        text="ab",
        score=score or Score(0.5, False, parts={"format": 1.0}),
    )
    return Group(number, Prompt(f"p{number}", "chain", "1+1:", (1, 2), "2"), epoch, (completion,))


def read(run):
    return list(Rollouts.of(run).select())


def test_a_completion_comes_back_as_it_was_sampled(tmp_path):
    writer = RolloutWriter(tmp_path, seed=0, attempt=0)
    writer.add(group(7))
    writer.add(group(8, score=Score(None, None, Outcome.FAILED)))
    writer.close()
    fates = {7: rollouts.Fate(0), 8: rollouts.Fate(0)}
    first, second = (rollout for rollout, _ in Rollouts(tmp_path / "rollouts", fates).select())
    assert first.to_dict() == {
        "group": 7,
        "attempt": 0,
        "prompt_id": "p7",
        "task": "chain",
        "epoch": 0,
        "index": 0,
        "prompt": "1+1:",
        "answer": "2",
        "text": "ab",
        "token_ids": [5, 6, 7],
        "log_probs": [-0.5, 0.0, -1.25],
        "trainable": [True, False, True],
        "versions": [3, 4],
        "version_tokens": [1, 2],
        "finished": True,
        "value": 0.5,
        "passed": False,
        "outcome": "graded",
        "parts": {"format": 1.0},
    }
    assert (second.value, second.passed, second.outcome) == (None, None, "failed")


def test_the_folder_reads_as_one_table(tmp_path):
    run = write_run(tmp_path / "run", num_steps=5)
    assert pq.read_table(run.path / "rollouts").num_rows == 5 * 4 * 4


def test_every_completion_has_its_step_and_its_fate(tmp_path):
    found = read(write_run(tmp_path / "run", num_steps=6))
    assert len(found) == 6 * 16
    assert [fate.step for _, fate in found] == [step for step in range(1, 7) for _ in range(16)]
    assert {fate.became for rollout, fate in found if rollout.group % 4} == {"trained"}
    assert {fate.became for rollout, fate in found if rollout.group % 4 == 0} == {"filtered by zero_variance"}


def test_of_a_group_made_again_the_attempt_that_counts_is_shown(tmp_path):
    run = write_run(tmp_path / "run", num_steps=6, resume_at=4)
    assert pq.read_table(run.path / "rollouts").num_rows == 7 * 16, "the step that was lost is still in its file"
    found = read(run)
    assert sorted({(rollout.group, rollout.attempt) for rollout, _ in found}) == [(g, 0 if g < 12 else 1) for g in range(24)]


def test_a_killed_run_lacks_the_open_part_and_the_reader_knows_how_much(tmp_path):
    run = write_run(tmp_path / "run", num_steps=6)
    assert Rollouts.of(run).kept() == set(range(24))
    for part in (run.path / "rollouts").iterdir():
        part.unlink()
    found = Rollouts.of(run)
    assert (list(found.select()), found.kept(), len(found.fates)) == ([], set(), 24)


def test_a_selection_is_by_step_prompt_and_grade(tmp_path):
    found = Rollouts.of(write_run(tmp_path / "run", num_steps=6))
    of_step = list(found.select(step=3, passed=True))
    assert [(rollout.group, rollout.index, fate.step) for rollout, fate in of_step] == [(9, 0, 3), (10, 0, 3), (11, 0, 3)]
    assert {rollout.group for rollout, _ in found.select(prompt="chain/7")} == {7}
    assert len(list(found.select(passed=False))) == 6 * 16 - 6 * 3
    assert not list(found.select(step=99))


def test_parts_are_written_when_they_are_full_and_numbered_on(tmp_path, monkeypatch):
    monkeypatch.setattr(rollouts, "_GROUPS_PER_PART", 2)
    for _ in range(2):
        writer = RolloutWriter(tmp_path, seed=0, attempt=3)
        for number in range(3):
            writer.add(group(number))
        writer.close()
        writer.close()
    assert sorted(path.name for path in (tmp_path / "rollouts").iterdir()) == [f"part-0003-{n:06d}.parquet" for n in range(4)]


def test_the_share_that_is_kept_is_drawn_by_prompt_and_epoch(tmp_path):
    kept = []
    for attempt in (0, 1):
        writer = RolloutWriter(tmp_path, seed=5, attempt=attempt, share=0.3)
        for number in range(400):
            writer.add(group(number))
        writer.close()
        kept.append(set(pq.read_table(tmp_path / "rollouts" / f"part-{attempt:04d}-000000.parquet")["group"].to_pylist()))
    assert kept[0] == kept[1]
    assert len(kept[0]) == pytest.approx(120, abs=30)
    assert not RolloutWriter(tmp_path, seed=5, attempt=2, share=0.0)._keeps(group(1))


def test_a_full_disk_is_one_sentence_and_loses_nothing_that_was_collected(tmp_path, monkeypatch):
    writer = RolloutWriter(tmp_path, seed=0, attempt=0)
    writer.add(group(1))

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_space)
        with pytest.raises(ScalerlError, match="No space left on device"):
            writer.flush()
    assert list((tmp_path / "rollouts").iterdir()) == []
    writer.close()
    assert pq.read_table(tmp_path / "rollouts")["group"].to_pylist() == [1]


@pytest.mark.parametrize("content", [b"", b"PAR1 no parquet"])
def test_a_damaged_file_is_told_and_not_skipped(tmp_path, content):
    run = write_run(tmp_path / "run", num_steps=2)
    part = next((run.path / "rollouts").iterdir())
    part.write_bytes(content)
    with pytest.raises(CorruptLogError, match="these rollouts cannot be read"):
        read(run)


def test_a_group_that_could_not_be_graded_does_not_wait_for_ever(tmp_path):
    columns = {"num_tokens": (3,), "values": (None,), "passed": (None,), "finished": (True,), "first_versions": (0,), "last_versions": (0,)}
    finished = GroupFinished(group=5, prompt_id="p5", epoch=0, task="chain", **columns)
    fold = rollouts.FatesFold()
    for seq, event in enumerate((finished, StepFinished(step=1, version=1, failed=(5,)), Resumed(from_seq=1))):
        fold.update(Entry(seq, float(seq), event))
    assert fold.fates[5] == rollouts.Fate(0, 1, 1, "not graded")


def test_a_group_that_only_waits_has_no_step(tmp_path):
    run = write_run(tmp_path / "run", num_steps=2)
    columns = {"num_tokens": (1,), "values": (0.0,), "passed": (False,), "finished": (True,), "first_versions": (0,), "last_versions": (0,)}
    fold = rollouts.FatesFold()
    for entry in run.events():
        fold.update(entry)
    fold.update(type(entry)(99, 1.0, GroupFinished(group=50, prompt_id="p", epoch=0, task="chain", **columns)))
    assert fold.fates[50] == rollouts.Fate(0)
