"""Resumed runs, repeated steps, clocks that restart or run on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.core.errors import DataError
from scalerl.core.units import SECONDS, STEPS
from scalerl.importers import Choice, read_curves
from scalerl.importers.tables.lineage import follow
from tests.importers.logs import jsonl, said

I2_STEPS = [1, 2, 3, 4, 5, 4, 5, 6]
I2_ELAPSED_S = [10, 20, 30, 40, 50, 12, 22, 32]
I2_REWARDS = [0.10, 0.20, 0.30, 0.40, 0.50, 0.38, 0.47, 0.55]
I2_KEPT = [0.10, 0.20, 0.30, 0.38, 0.47, 0.55]


def resumed_run(path, column, values):
    return jsonl(path, [{"step": s, column: v, "reward": r} for s, v, r in zip(I2_STEPS, values, I2_REWARDS, strict=True)])


def test_i2_last_lineage_wins_and_the_rest_is_wasted(tmp_path):
    (curve,) = read_curves(resumed_run(tmp_path / "log.jsonl", "elapsed_s", I2_ELAPSED_S))
    assert curve.axis == SECONDS
    assert curve.reward.tolist() == I2_KEPT
    assert curve.compute.tolist() == [10, 20, 30, 42, 52, 62]
    assert curve.wasted_compute == 20
    assert curve.wasted_compute + curve.compute[-1] == 82
    assert said(curve.notes, "resumed 1 time, first from step 4", "20 s", "24.4%")


def test_i2_device_hours_scale_useful_and_wasted_compute_alike(tmp_path):
    (curve,) = read_curves(resumed_run(tmp_path / "log.jsonl", "elapsed_s", I2_ELAPSED_S), choice=Choice(gpus=360))
    assert curve.compute.tolist() == pytest.approx([1.0, 2.0, 3.0, 4.2, 5.2, 6.2])
    assert curve.wasted_compute == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("column", "values", "useful", "wasted"),
    [
        ("total_tokens", [10, 20, 30, 40, 50, 41, 51, 61], [10, 20, 30, 41, 51, 61], 20),  # restored with the checkpoint
        ("total_tokens", [10, 20, 30, 40, 50, 60, 70, 80], [10, 20, 30, 40, 50, 60], 20),  # counts what was lost, too
        ("step_time", [10, 10, 10, 10, 10, 12, 10, 10], [10, 20, 30, 42, 52, 62], 20),
        ("_timestamp", [1.7e9 + t for t in (0, 10, 20, 30, 40, 50440, 50450, 50460)], [10, 20, 30, 40, 50, 60], 20),  # a pause of 14 h
        ("elapsed_s", [10, 20, 30, 40, 50, 50450, 50460, 50470], [10, 20, 30, 40, 50, 60], 20),
    ],
)
def test_i2_other_counters_of_the_same_run(tmp_path, column, values, useful, wasted):
    (curve,) = read_curves(resumed_run(tmp_path / "log.jsonl", column, values))
    assert curve.reward.tolist() == I2_KEPT
    assert curve.compute.tolist() == pytest.approx(useful)
    assert curve.wasted_compute == pytest.approx(wasted)


def test_i2_steps_alone_show_the_resume(tmp_path):
    rows = [{"step": step, "reward": reward} for step, reward in zip(I2_STEPS, I2_REWARDS, strict=True)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.axis, curve.compute.tolist(), curve.reward.tolist(), curve.wasted_compute) == (STEPS, [1, 2, 3, 4, 5, 6], I2_KEPT, 2)


def test_i2_a_clock_that_restarts_without_repeated_steps_goes_on(tmp_path):
    rows = [{"step": step, "elapsed_s": clock, "eval/acc": 0.5} for step, clock in [(1, 10), (2, 20), (3, 12), (4, 22)]]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.compute.tolist(), curve.wasted_compute) == ([10, 20, 32, 42], 0)
    assert said(curve.notes, "'elapsed_s' starts again 1 time, first at step 3, and is counted on: no step was repeated")
    assert not said(curve.notes, "of the bill")


def test_i2_a_pause_without_a_resume_is_no_compute(tmp_path):
    clocks = [1.7e9 + t for t in (0, 60, 120, 120 + 14 * 3600, 180 + 14 * 3600)]
    rows = [{"step": step, "_timestamp": clock, "eval/acc": 0.5} for step, clock in enumerate(clocks)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.compute.tolist() == pytest.approx([0, 60, 120, 180, 240])
    assert said(curve.notes, "14 hours left out: the clock ran on")


def test_an_evaluation_logged_late_is_no_resume(tmp_path):
    rows = [{"step": 1, "step_time": 5.0}, {"step": 2, "step_time": 5.0}, {"step": 1, "eval/acc": 0.4}, {"step": 3, "step_time": 5.0}]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.compute.tolist(), curve.reward.tolist(), curve.wasted_compute) == ([5.0], [0.4], 0.0)


def test_an_evaluation_logged_late_is_no_resume_on_the_axis_of_steps_either(tmp_path):
    rows = [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 5.0}, {"step": 1, "eval/acc": 0.4}, {"step": 3, "loss": 5.0, "eval/acc": 0.5}]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.axis, curve.compute.tolist(), curve.reward.tolist(), curve.wasted_compute) == (STEPS, [1.0, 3.0], [0.4, 0.5], 0.0)


def test_i2_the_log_of_a_resumed_process_alone_starts_late(tmp_path):
    rows = [{"step": step, "elapsed_s": 10.0 * (step - 2000), "eval/acc": 0.5} for step in range(2001, 2010)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.compute.tolist() == [10.0 * step for step in range(2001, 2010)]
    assert said(curve.notes, "the log starts at step 2001: the steps before are counted at the rate of its first rows")
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", [{**row, "elapsed_s": row["elapsed_s"] + 20000.0} for row in rows]))
    assert curve.compute[0] == 20010.0


def test_an_evaluation_between_two_counts_lies_between_them(tmp_path):
    rows = [{"step": 10, "gpu_hours": 100.0}, {"step": 15, "eval/acc": 0.4}, {"step": 20, "gpu_hours": 140.0}]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.compute.tolist() == [120.0]
    assert said(curve.notes, "1 point of 'eval/acc' between two readings of 'gpu_hours', which is interpolated there")


def test_rewards_outside_the_readings_of_compute_are_left_out(tmp_path):
    rows = [{"step": step, "eval/acc": step / 100} for step in (0, 10, 20, 30)] + [{"step": step, "gpu_hours": step} for step in (10, 20)]
    rows.sort(key=lambda row: row["step"])
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([0.0, 10.0, 20.0], [0.0, 0.1, 0.2])
    assert said(curve.notes, "1 value of 'eval/acc' left out: before the first or after the last reading of 'gpu_hours'")
    assert not said(curve.notes, "interpolated")


def test_without_steps_nothing_is_known_before_the_first_reading(tmp_path):
    rows = [{"eval/acc": 0.1}, {"gpu_hours": 5.0, "eval/acc": 0.2}, {"gpu_hours": 7.0, "eval/acc": 0.3}, {"eval/acc": 0.4}]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.compute.tolist(), curve.reward.tolist()) == ([5.0, 7.0], [0.2, 0.3])
    assert said(curve.notes, "2 values of 'eval/acc' left out: before the first or after the last reading of 'gpu_hours'")


def test_an_evaluation_before_step_zero_has_cost_nothing(tmp_path):
    rows = [{"step": step, "gpu_hours": 4.0 + step, "test/env/all/reward/total": 0.1 * step} for step in (0, 1, 2)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.compute.tolist() == [0.0, 4.0, 5.0]


def test_absurd_compute_is_one_sentence(tmp_path):
    rows = [{"step": step, "step_time": 1e308, "eval/acc": 0.1} for step in (10, 20, 5)]
    with pytest.raises(DataError, match="'step_time' adds up to more than a number can hold; choose another with --x"):
        read_curves(jsonl(tmp_path / "log.jsonl", rows))


def test_compute_that_is_no_number_is_counted(tmp_path):
    rows = [{"step": 1, "gpu_hours": 1.0, "eval/acc": 0.1}, {"step": 2, "gpu_hours": "NaN", "eval/acc": 0.2}]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", [*rows, {"step": 3, "gpu_hours": 3.0, "eval/acc": 0.3}]))
    assert curve.compute.tolist() == [1.0, 2.0, 3.0]
    assert said(curve.notes, "1 value of 'gpu_hours' left out: not a finite number")
    assert said(curve.notes, "1 point of 'eval/acc' between two readings of 'gpu_hours'")


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0.01, 100.0)), min_size=1, max_size=60))
def test_nothing_spent_is_lost_between_useful_and_wasted(rows):
    """Step times: each row's time x gap is either useful or wasted, whatever order the steps come in."""
    steps = np.array([step for step, _ in rows], dtype=np.float64)
    seconds = np.array([second for _, second in rows])
    lineage = follow(np.arange(len(rows)), steps, seconds, counts="per_step")
    assert (np.diff(lineage.steps) > 0).all()
    assert (np.diff(lineage.compute) > 0).all()
    assert lineage.steps[-1] == steps[-1]
    kept = lineage.kept(np.arange(len(rows)), steps)
    assert set(steps[kept]) == set(lineage.steps)
    assert lineage.wasted >= 0


def test_an_evaluation_on_the_row_after_its_compute_is_kept_without_steps(tmp_path):
    rows = [row for tokens in (10, 20, 30) for row in ({"tokens": tokens}, {"eval/acc": tokens / 100})]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.reward.tolist() == [0.1, 0.2, 0.3]
    assert curve.compute[-1] == 30.0


@pytest.mark.parametrize("steps", [[4, 3, 2, 1], [4, 4, 3, 2, 2, 1], [3, 1, 4, 2]])
def test_rows_in_no_order_of_time_are_sorted_instead_of_taken_for_restarts(tmp_path, steps):
    rows = [{"step": step, "gpu_hours": 10.0 * step, "eval/acc": step / 10} for step in steps]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.compute.tolist(), curve.reward.tolist(), curve.wasted_compute) == ([10, 20, 30, 40], [0.1, 0.2, 0.3, 0.4], 0.0)
    assert said(curve.notes, "sorted by their steps")


@pytest.mark.parametrize("unit", [1e3, 1e6, 1e9])
def test_time_stamps_finer_than_seconds_are_made_seconds(tmp_path, unit):
    rows = [{"step": step, "timestamp": (1.7e9 + 60.0 * step) * unit, "eval/acc": 0.5} for step in range(5)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert (curve.axis, curve.compute.tolist()) == (SECONDS, pytest.approx([0, 60, 120, 180, 240], abs=1e-3))
    assert said(curve.notes, f"'timestamp' / {unit:g}")
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows), choice=Choice(gpus=60))
    assert curve.compute.tolist() == pytest.approx([0, 1, 2, 3, 4], abs=1e-6)


@pytest.mark.parametrize(
    ("values", "compute", "taken_for"),
    [
        ([100, 100, 100, 100, 100], [100, 200, 300, 400, 500], "the amount of each step, and added up"),
        ([100, 120, 90, 110, 80], [100, 220, 310, 420, 500], "the amount of each step, and added up"),
        ([100, 100, 100, 250, 250], [100, 100, 100, 250, 250], "a running total"),  # repeated on rows that did not count
        ([100, 210, 300, 410, 500], [100, 210, 300, 410, 500], "a running total"),
    ],
)
@pytest.mark.parametrize("column", ["tokens", "flops"])
def test_what_a_counter_was_taken_for_is_said(tmp_path, column, values, compute, taken_for):
    rows = [{"step": step, column: value, "eval/acc": 0.5} for step, value in enumerate(values, start=1)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows))
    assert curve.compute.tolist() == compute
    assert said(curve.notes, f"'{column}' is taken for {taken_for}")
