"""Our own run directories: the curve that the accounting folds, with what resumes threw away."""

import pytest

from scalerl.core.clock import ManualClock
from scalerl.core.errors import DataError, UnknownNameError
from scalerl.core.units import DEVICE_HOURS, FLOPS
from scalerl.importers import Choice, list_columns, read_curves
from scalerl.recipes import resolve
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import CheckpointStarted, Evaluated, Resumed, RunStarted, StepFinished
from scalerl.runs import RunDirectory


@pytest.fixture
def run(tmp_path):
    """Two tasks, three versions of 10 s and 1 GFLOP, the third made twice around a resume."""
    clock = ManualClock(1_700_000_000.0)
    directory = RunDirectory.create(tmp_path / "run", resolve("scalerl"), clock=clock)
    with directory.writer(clock=clock) as log:

        def step(version, passed):
            clock.advance(10.0)
            log.append(StepFinished(step=version, version=version, costs=(Cost("trainer:0", Activity.TRAIN, seconds=10.0, flops=1e9),)))
            log.append(Evaluated(task="math", version=version, num_passed=passed, num_graded=100))
            log.append(Evaluated(task="code", version=version, num_passed=passed // 2, num_graded=50))

        log.append(RunStarted(recipe_hash=directory.recipe.hash, num_devices=2))
        step(1, 20)
        step(2, 40)
        captured = log.append(CheckpointStarted(step=2)).seq
        step(3, 99)
        clock.advance(3600.0)
        log.append(Resumed(from_seq=captured))
        step(3, 60)
    return directory


def test_a_curve_for_each_task_on_flops(run):
    math, code = read_curves(run.path)
    assert (math.name, code.name, math.axis) == ("math", "code", FLOPS)
    assert math.compute.tolist() == [1e9, 2e9, 3e9]
    assert math.reward.tolist() == [0.2, 0.4, 0.6]
    assert math.trials.tolist() == [100.0, 100.0, 100.0]
    assert code.reward.tolist() == [0.2, 0.4, 0.6]
    assert math.wasted_compute == 1e9


def test_what_a_run_counts_is_never_guessed_at(run):
    for axis in (None, "device_hours", "tokens"):
        assert not any("taken for" in note for curve in read_curves(run.path, choice=Choice(x=axis)) for note in curve.notes)


def test_another_axis_and_one_task(run):
    (curve,) = read_curves(run.path, choice=Choice.of(x="device_hours", where=["task=code"]))
    assert curve.axis == DEVICE_HOURS
    assert (curve.compute * 3600.0).tolist() == pytest.approx([20.0, 40.0, 60.0])
    assert curve.wasted_compute * 3600.0 == pytest.approx(20.0)
    with pytest.raises(UnknownNameError, match="there is no column 'gpu_days'"):
        read_curves(run.path, choice=Choice.of(x="gpu_days"))
    with pytest.raises(UnknownNameError, match="'maths'; did you mean 'math'"):
        read_curves(run.path, choice=Choice.of(where=["task=maths"]))


def test_the_log_alone_will_do_and_a_torn_end_is_told(run):
    whole = read_curves(run.path)[0]
    with run.events_path.open("ab") as file:
        file.write(b'{"seq": 99, "ti')
    (curve, _) = read_curves(run.events_path)
    assert curve.reward.tolist() == whole.reward.tolist()
    assert "the last event was torn (15 bytes) and left out" in curve.notes


def test_a_run_without_evaluation_is_one_sentence(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", resolve("scalerl"), clock=ManualClock())
    with pytest.raises(DataError, match="the folder holds no known log"):
        read_curves(directory.path)
    with directory.writer(clock=ManualClock()) as log:
        log.append(RunStarted(recipe_hash="a", num_devices=1))
    with pytest.raises(DataError, match="the run has no evaluation yet; wait for its first one"):
        read_curves(directory.path)


def test_what_a_run_offers_is_listed(run):
    assert {"task", "pass_rate", "trials", "flops", "device_hours", "tokens"} <= {column.name for column in list_columns(run.path).columns}


def test_a_foreign_log_of_the_same_name_is_read_as_what_it_is(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"gpu_hours": 1, "pass_rate": 0.1}\n{"gpu_hours": 2, "pass_rate": 0.2}\n')
    (curve,) = read_curves(path)
    assert (curve.axis, curve.reward.tolist()) == (DEVICE_HOURS, [0.1, 0.2])
