"""Steps that start again with every epoch are counted on; restarts of the run stay restarts."""

import pytest

from scalerl.core.units import DEVICE_HOURS, STEPS, TOKENS
from scalerl.importers import Choice, read_curves
from tests.importers.logs import jsonl, said

GOES_ON = "the steps start again {} while the run goes on: they are counted on, as through the epochs of one run"


def rows_of(*stretches, rate=2.0, **columns):
    """Rows whose steps are those of the `stretches`, and whose counter grows by `rate` for each; a reward on every fifth."""
    steps = [step for stretch in stretches for step in stretch]
    return [
        {"step": step, "gpu_hours": rate * place, **{name: column[place - 1] for name, column in columns.items()}}
        | ({"eval/acc": place / 1000} if place % 5 == 0 else {})
        for place, step in enumerate(steps, start=1)
    ]


def epochs_of(*lengths):
    return [epoch for epoch, length in enumerate(lengths) for _ in range(length)]


def curve_of(tmp_path, rows, **choice):
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows), choice=Choice(**choice))
    return curve


@pytest.mark.parametrize(
    ("stretches", "times"),
    [
        ([range(1, 21)] * 5, "4 times"),
        ([range(20)] * 5, "4 times"),
        ([range(20), range(20), range(5)], "2 times"),
        ([range(1, 21), range(1, 22), range(1, 21)], "2 times"),  # a filtered batch more or less
        ([range(21), range(1, 21), range(1, 21)], "2 times"),  # step 0 is the base
        ([range(10, 101, 10)] * 4, "3 times"),
        ([range(5, 96, 10)] * 4, "3 times"),
    ],
)
def test_a_total_that_goes_on_through_the_restarts_of_the_steps_places_every_point(tmp_path, stretches, times):
    rows = rows_of(*stretches)
    curve = curve_of(tmp_path, rows)
    assert curve.axis == DEVICE_HOURS
    assert curve.compute.tolist() == [row["gpu_hours"] for row in rows if "eval/acc" in row]
    assert (curve.reward.tolist(), curve.wasted_compute) == ([row["eval/acc"] for row in rows if "eval/acc" in row], 0.0)
    assert said(curve.notes, GOES_ON.format(times), "tell them apart with --by or --where")
    assert not said(curve.notes, "resumed")


@pytest.mark.parametrize("start", [0.0, 1.7e9])
def test_so_does_a_clock(tmp_path, start):
    rows = [
        {"elapsed_s" if key == "gpu_hours" else key: value for key, value in row.items()} for row in rows_of(*[range(1, 21)] * 3, rate=60.0)
    ]
    for row in rows:
        row["elapsed_s"] += start
    curve = curve_of(tmp_path, rows)
    assert curve.compute.tolist() == [60.0 * place for place in range(5, 61, 5)]
    assert curve.wasted_compute == 0.0


def test_evaluations_on_rows_of_their_own_stay_in_their_epoch(tmp_path):
    rows = [{"step": 0, "eval/acc": 0.0}]
    for epoch in range(3):
        rows += [{"step": step, "gpu_hours": float(20 * epoch + step)} for step in range(1, 21)]
        rows += [{"step": 20, "eval/acc": (epoch + 1) / 10}, {"step": 10, "eval/acc": epoch / 10 + 0.05}]
        rows += [{"step": 0, "eval/acc": (epoch + 1) / 10 + 0.01}]  # of the next epoch, before its first step
    curve = curve_of(tmp_path, rows[:-1])
    assert curve.compute.tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert curve.reward.tolist() == pytest.approx([0, 0.05, 0.11, 0.15, 0.21, 0.25, 0.3])


def test_an_epoch_whose_first_step_is_logged_besides_every_tenth(tmp_path):
    rows = [{"step": step, "gpu_hours": 100.0 * epoch + step, "eval/acc": 0.5} for epoch in range(4) for step in (1, *range(10, 101, 10))]
    curve = curve_of(tmp_path, rows)
    assert curve.compute.tolist() == [row["gpu_hours"] for row in rows]
    assert said(curve.notes, GOES_ON.format("3 times"))


def test_amounts_of_each_step_are_added_up_through_the_epochs_that_a_column_counts(tmp_path):
    rows = rows_of(*[range(1, 21)] * 5, epoch=epochs_of(*[20] * 5), tokens=[100 + place % 7 for place in range(100)])
    curve = curve_of(tmp_path, rows, x="tokens")
    total, expected = 0, []
    for row in rows:
        total += row["tokens"]
        expected += [total] if "eval/acc" in row else []
    assert (curve.axis, curve.compute.tolist(), curve.wasted_compute) == (TOKENS, expected, 0.0)
    assert said(curve.notes, GOES_ON.format("4 times"))


def test_steps_themselves_are_counted_on_where_a_column_counts_epochs(tmp_path):
    rows = [{key: row[key] for key in row if key != "gpu_hours"} for row in rows_of(*[range(1, 21)] * 5, epoch=epochs_of(*[20] * 5))]
    curve = curve_of(tmp_path, rows)
    assert (curve.axis, curve.compute.tolist(), curve.wasted_compute) == (STEPS, list(range(5, 101, 5)), 0.0)
    assert curve_of(tmp_path, rows, x="step").compute.tolist() == curve.compute.tolist()


def test_another_counter_of_steps_that_goes_on_can_be_asked_for(tmp_path):
    rows = [{"step": row["step"], "_step": place, **row} for place, row in enumerate(rows_of(*[range(1, 21)] * 5), start=1)]
    rows = [{key: row[key] for key in row if key != "gpu_hours"} for row in rows]
    curve = curve_of(tmp_path, rows)
    assert curve.wasted_compute == 80.0
    assert said(
        curve.notes, "so much waste is DOUBTFUL: if the steps start again with every epoch, --x COLUMN names a counter that goes on"
    )
    curve = curve_of(tmp_path, rows, x="_step")
    assert (curve.compute.tolist(), curve.wasted_compute) == (list(range(5, 101, 5)), 0.0)


def test_a_resume_within_an_epoch_is_one(tmp_path):
    first, again = rows_of(range(1, 21), range(1, 16)), rows_of(range(1, 21), range(1, 21), range(1, 21))
    curve = curve_of(tmp_path, first + again[20:])  # epoch 1 comes again from its start, with its checkpoint's total
    assert curve.compute.tolist() == [row["gpu_hours"] for row in again if "eval/acc" in row]
    assert curve.wasted_compute == 30.0
    assert said(curve.notes, "resumed 1 time, first from step 21", "20.0% of the bill")
    assert said(curve.notes, GOES_ON.format("2 times"))


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (rows_of(range(1, 21)), rows_of(range(1, 61))),  # the counter starts again
        (rows_of(range(1, 21)), rows_of(range(1, 21), range(1, 61))[20:]),  # it ran through, but the run got further
        (rows_of(range(1, 21)), [row | {"gpu_hours": row["gpu_hours"] + 400.0} for row in rows_of(range(1, 21))]),  # after a long pause
    ],
)
def test_a_run_that_begins_anew_wastes_what_it_had_done(tmp_path, first, again):
    curve = curve_of(tmp_path, first + again)
    assert curve.wasted_compute == 40.0
    assert curve.compute.tolist() == pytest.approx([2.0 * step for step in range(5, len(again) + 1, 5)])
    assert said(curve.notes, "resumed 1 time, first from step 1")
    assert said(curve.notes, "so much waste is DOUBTFUL") == (len(again) == 20)


def test_an_epoch_that_falls_back_with_the_steps_is_begun_anew(tmp_path):
    rows = rows_of(range(1, 21), epoch=[step / 20 for step in range(1, 21)])
    curve = curve_of(tmp_path, rows[:15] + rows)
    assert curve.wasted_compute == 30.0
    assert len(curve) == 4
