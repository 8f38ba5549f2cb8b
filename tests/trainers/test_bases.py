"""Bases: made once, whole or not at all, and booked whether made or found."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.core.errors import DataError, ScalerlError
from scalerl.models._policy import Policy
from scalerl.models.checkpoint import Checkpoint
from scalerl.records.cost import Activity
from scalerl.tasks import Example
from scalerl.trainers.warm_starts._bases import base
from scalerl.trainers.warm_starts.demonstrations import Demonstrations
from tests.trainers.test_single import disk_full
from tests.trainers.tiny import DIGITS, MODEL, Counting, tiny_policy

SHORT = Demonstrations(steps=2, messy_steps=1, batch=4)


def made(bases, *, model=MODEL, warm_start=SHORT, seed=0, meter=None, between=lambda: None):
    meter = meter or Meter("trainer:0", clock=ManualClock())
    return base(model, Counting(), warm_start, seed=seed, bases=bases, meter=meter, between=between)


def weights_in(folder):
    return Policy.load(folder, head="fp32", dtype="float32").tensors()


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    assert all(tensor.equal(found[name]) for name, tensor in expected.items())


def test_a_base_is_made_once_and_booked_each_time(tmp_path):
    clock = ManualClock()
    meter = Meter("trainer:0", clock=clock)
    folder = made(tmp_path / "bases", meter=meter, between=lambda: clock.advance(2.0))
    (first,) = meter.collect()
    assert (first.activity, first.seconds, first.detail) == (Activity.WARM_START, 6.0, "")

    def never():
        raise AssertionError("a base in the cache is not trained again")

    assert made(tmp_path / "bases", meter=meter, between=never) == folder
    (second,) = meter.collect()
    assert (second.activity, second.seconds, second.detail) == (Activity.WARM_START, 0.0, "base from the cache")
    assert (second.flops, second.overhead_flops, second.tokens) == (first.flops, first.overhead_flops, first.tokens)
    assert first.flops > 0.0


def test_a_base_says_what_made_it_and_what_it_cost(tmp_path):
    meter = Meter("trainer:0", clock=ManualClock())
    record = json.loads((made(tmp_path, meter=meter) / "base.json").read_text())
    (cost,) = meter.collect()
    assert record["made_by"]["warm_start"]["steps"] == 2
    assert record["made_by"]["torch"].startswith(torch.__version__.partition("+")[0])
    expected = {"flops": cost.flops, "overhead_flops": cost.overhead_flops, "tokens": cost.tokens, "seconds": 0.0}
    assert record["cost"] == expected


def test_a_base_is_the_warm_started_model(tmp_path):
    policy = tiny_policy()
    SHORT.train(policy, Counting(), seed=0, meter=Meter("trainer:0", clock=ManualClock()), between=lambda: None)
    assert_equal(weights_in(made(tmp_path)), policy.tensors())


def test_without_warm_start_the_model_is_the_base(tmp_path):
    meter = Meter("trainer:0", clock=ManualClock())
    folder = made(tmp_path, warm_start=None, meter=meter)
    assert_equal(weights_in(folder), tiny_policy().tensors())
    assert [(cost.activity, cost.flops) for cost in meter.collect()] == [(Activity.WARM_START, 0.0)]


def test_whatever_decides_a_base_has_a_folder_of_its_own(tmp_path):
    variants = [
        {},
        {"seed": 1},
        {"warm_start": None},
        {"warm_start": Demonstrations(steps=2, messy_steps=1, batch=5)},
        {"model": MODEL.model_copy(update={"num_layers": 1})},
    ]
    assert len({made(tmp_path, **variant) for variant in variants}) == len(variants)


def test_a_checkpoint_written_over_makes_another_base(tmp_path):
    model = Checkpoint(path=str(tmp_path / "model"), dtype="float32")
    folders = []
    for seed in (0, 1):
        tiny_policy(seed=seed).save(tmp_path / "model")
        folders.append(made(tmp_path / "bases", model=model, warm_start=None))
        assert_equal(weights_in(folders[-1]), tiny_policy(seed=seed).tensors())
    assert folders[0] != folders[1]


def test_examples_that_change_under_one_setting_make_another_base(tmp_path, monkeypatch):
    first, untaught = made(tmp_path), made(tmp_path, warm_start=None)
    assert made(tmp_path) == first
    with monkeypatch.context() as patch:
        patch.setattr(Counting, "examples", lambda self, split: [Example("0", "3:", "4")])
        assert made(tmp_path) != first
        assert made(tmp_path, warm_start=None) == untaught, "examples that nothing is taught by decide nothing"
    monkeypatch.setattr(Counting, "alphabet", lambda self: f"{DIGITS}x")
    assert made(tmp_path, warm_start=None) != untaught


def test_runs_that_make_other_bases_at_once_leave_each_other_alone(tmp_path):
    others = []

    def meanwhile():
        if not others:
            others.append(made(tmp_path, seed=1))

    folder = made(tmp_path, between=meanwhile)
    assert sorted(tmp_path.iterdir()) == sorted([folder, *others])


@pytest.mark.parametrize("content", [None, "", "{}", '{"cost": 3}'])
def test_a_base_that_does_not_say_what_it_cost_is_told(tmp_path, content):
    record = made(tmp_path) / "base.json"
    record.unlink() if content is None else record.write_text(content)
    with pytest.raises(DataError, match=r"its base\.json does not say what this base cost; remove the folder, so that it is made again"):
        made(tmp_path)


def test_two_runs_at_once_make_one_base(tmp_path):
    others = []

    def overtaken():
        if not others:
            others.append(made(tmp_path))

    assert made(tmp_path, between=overtaken) == others[0]
    assert list(tmp_path.iterdir()) == others


def test_an_unfinished_base_is_no_base(tmp_path):
    class Stop(Exception):
        pass

    def stop():
        raise Stop

    with pytest.raises(Stop):
        made(tmp_path, between=stop)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.trainers.test_bases import made
made(Path(sys.argv[1]), between=lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_run_killed_while_it_makes_a_base_leaves_none(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    died = subprocess.run([sys.executable, "-c", KILLED, tmp_path], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".")

    folder = made(tmp_path, seed=1)

    assert list(tmp_path.iterdir()) == [folder], "what the dead run left is swept away, whichever base it was to be"


def test_a_disk_that_is_full_is_one_clear_sentence_and_no_base(tmp_path):
    with disk_full(after_bytes=8192), pytest.raises(ScalerlError, match=r"the model cannot be written .*; make room"):
        made(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_hold_bases_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScalerlError, match="no base can be kept here"):
        made(tmp_path / "file")
