"""A running total or the amount of each step: the numbers decide, and the notes say what was assumed."""

import numpy as np
import pytest

from scalerl.core.errors import DataError
from scalerl.importers import Choice, read_curves
from scalerl.importers.tables.counting import counts_of
from tests.importers.logs import jsonl, said, text

AMOUNTS = {
    "roughly constant": [8.0, 8.2, 7.9, 8.1, 8.0],
    "constant": [8.0, 8.0, 8.0, 8.0, 8.0],
    "slowly rising": [8.0, 8.1, 8.2, 8.3, 8.4],
    "rising, with one fall": [8.0, 9.0, 10.0, 9.7, 11.0],
    "falling": [9.0, 8.0, 7.0, 6.0, 5.0],
    "noisy": [8.0, 14.0, 5.0, 12.0, 7.0],
}
TOTALS = {
    "from nothing": [0.0, 1.0, 2.0, 3.0, 4.0],
    "in step": [10.0, 19.0, 31.0, 40.0, 52.0],
    "slow first step": [5.0, 6.0, 7.0, 8.0, 9.0],
    "one wrong row in a long log": [10.0, 20.0, 30.0, 25.0, 50.0, 60.0],
    "starts again": [10.0, 20.0, 30.0, 9.0, 19.0],
    "starts again early": [8.0, 14.0, 5.0, 16.0],
    "repeated on rows that did not count": [10.0, 10.0, 10.0, 20.0, 20.0],
}


def curve_of(tmp_path, column, values, *, gap=1, **choice):
    rows = [{"step": gap * place, column: value, "eval/acc": 0.5} for place, value in enumerate(values, start=1)]
    (curve,) = read_curves(jsonl(tmp_path / "log.jsonl", rows), choice=Choice(**choice))
    return curve


@pytest.mark.parametrize("values", AMOUNTS.values(), ids=AMOUNTS)
@pytest.mark.parametrize("column", ["gpu_hours", "train/gpu_hours", "total_flops", "cumulative_flops", "total_tokens", "cost_usd"])
def test_what_is_plainly_of_each_step_is_added_up_whatever_its_name(tmp_path, column, values):
    curve = curve_of(tmp_path, column, values)
    assert curve.compute.tolist() == pytest.approx(np.cumsum(values).tolist())
    assert said(curve.notes, f"'{column}' is taken for the amount of each step, and added up, as its numbers suggest")


@pytest.mark.parametrize("name", ["roughly constant", "constant", "rising, with one fall", "falling"])
@pytest.mark.parametrize("column", ["elapsed_s", "runtime"])
def test_a_clock_that_goes_back_or_stands_is_the_time_of_each_step(tmp_path, column, name):
    curve = curve_of(tmp_path, column, AMOUNTS[name])
    assert curve.compute.tolist() == pytest.approx(np.cumsum(AMOUNTS[name]).tolist())
    assert said(curve.notes, f"'{column}' is taken for the amount of each step, and added up", "whatever its name says")


def test_a_column_that_the_user_chose_is_read_by_its_numbers_too(tmp_path):
    curve = curve_of(tmp_path, "spent", AMOUNTS["roughly constant"], x="spent")
    assert curve.compute.tolist() == pytest.approx([8.0, 16.2, 24.1, 32.2, 40.2])
    assert said(curve.notes, "'spent' is taken for the amount of each step, and added up, as its numbers suggest, whatever its name says")


def test_an_amount_on_every_tenth_step_counts_for_all_ten_and_it_says_so(tmp_path):
    curve = curve_of(tmp_path, "gpu_hours", AMOUNTS["roughly constant"], gap=10)
    assert curve.compute.tolist() == pytest.approx([80.0, 162.0, 241.0, 322.0, 402.0])
    assert said(curve.notes, "'gpu_hours' is taken for the amount of each step, of all 10 from one row to the next, added up")


@pytest.mark.parametrize("values", TOTALS.values(), ids=TOTALS)
def test_what_may_be_a_total_is_one_if_its_name_says_so(values):
    steps = np.arange(1.0, len(values) + 1.0)
    assert counts_of(np.array(values), steps=steps, named="total", if_growing="total") == "total"


def test_a_total_keeps_its_numbers_and_needs_no_note(tmp_path):
    curve = curve_of(tmp_path, "gpu_hours", TOTALS["in step"])
    assert curve.compute.tolist() == TOTALS["in step"]
    assert not said(curve.notes, "taken for")


def test_what_grows_in_step_is_a_total_even_if_its_name_is_of_a_step(tmp_path):
    values = [10.0, 20.0, 31.0, 40.0, 50.0, 61.0]
    curve = curve_of(tmp_path, "step_time", values)
    assert curve.compute.tolist() == values
    assert said(curve.notes, "'step_time' is taken for a running total, as its numbers suggest, whatever its name says")


def test_steps_that_take_longer_and_longer_are_no_total(tmp_path):
    curve = curve_of(tmp_path, "step_time", [10.0, 12.0, 14.0, 16.0, 18.0, 20.0])
    assert curve.compute.tolist() == [10, 22, 36, 52, 70, 90]
    assert not said(curve.notes, "taken for")


@pytest.mark.parametrize("values", [[1.7e9, 1.7e9 + 60, 1.7e9 + 60, 1.7e9 + 120, 1.7e9 + 180], [1010, 1020, 1030, 1040, 1050]])
def test_a_clock_may_begin_anywhere(tmp_path, values):
    curve = curve_of(tmp_path, "wall_time", values, x="wall_time")
    assert np.diff(curve.compute).tolist() == pytest.approx(np.diff(values).tolist())


@pytest.mark.parametrize("hours", ["30,20,10", "40,10,30,20", "100,10,1"])
def test_totals_in_any_order_are_no_amounts_where_no_steps_order_them(tmp_path, hours):
    lines = "".join(f"{hour},0.5\n" for hour in hours.split(","))
    (curve,) = read_curves(text(tmp_path / "log.csv", "gpu_hours,pass_rate\n" + lines))
    assert curve.compute.tolist() == sorted(map(float, hours.split(",")))
    assert said(curve.notes, "compute goes back")


def test_amounts_are_added_up_without_steps_too(tmp_path):
    (curve,) = read_curves(text(tmp_path / "log.csv", "gpu_hours,pass_rate\n8,0.1\n8.5,0.2\n7.5,0.3\n8,0.4\n"))
    assert curve.compute.tolist() == [8, 16.5, 24, 32]
    assert said(curve.notes, "'gpu_hours' is taken for the amount of each step, and added up")


GROWING = np.linspace(1e6, 3e6, 50)


@pytest.mark.parametrize("column", ["tokens", "flops", "cost_usd", "samples"])
@pytest.mark.parametrize("gap", [1, 10])
def test_what_grows_far_less_than_the_steps_is_the_amount_of_each(tmp_path, column, gap):
    curve = curve_of(tmp_path, column, GROWING.tolist(), gap=gap)
    assert curve.compute.tolist() == pytest.approx((gap * np.cumsum(GROWING)).tolist())
    assert said(curve.notes, f"'{column}' is taken for the amount of each step")


@pytest.mark.parametrize("column", ["gpu_hours", "total_flops"])
def test_a_name_that_says_total_is_believed_but_doubted_aloud(tmp_path, column):
    curve = curve_of(tmp_path, column, GROWING.tolist())
    assert curve.compute.tolist() == GROWING.tolist()
    assert said(curve.notes, f"'{column}' is taken for a running total, though it grows far less than the steps: if it is the amount of")


@pytest.mark.parametrize(
    ("steps", "values"),
    [
        (range(1001, 1051), np.linspace(1.001e9, 1.050e9, 50)),  # the end of a log
        (range(1, 51), np.cumsum([5.0] + [1.0] * 49)),  # a first step that cost as much as five
        (range(1, 6), np.linspace(10, 14, 5)),  # too few
    ],
)
def test_a_total_that_grows_slowly_for_a_reason_is_one(steps, values):
    assert counts_of(values, steps=np.array(steps, dtype=np.float64), named="unsaid", if_growing="total") == "total"


@pytest.mark.parametrize("values", [(np.arange(1, 501) * 20_000_000 + 2**31) % 2**32 - 2**31, [-80, -60, -40, 20, 40]])
@pytest.mark.parametrize("column", ["num_tokens", "gpu_hours", "elapsed_s", "step_time"])
def test_a_counter_below_zero_is_refused(tmp_path, column, values):
    with pytest.raises(
        DataError, match=f"'{column}' is below zero in .* rows .down to -.*, as a counter is that has overflowed; choose another"
    ):
        curve_of(tmp_path, column, [float(value) for value in values])


def test_an_unsigned_counter_that_has_overflowed_is_counted_on(tmp_path):
    values = np.arange(1, 501) * 20_000_000
    curve = curve_of(tmp_path, "num_tokens", (values % 2**32).tolist())
    assert curve.compute.tolist() == pytest.approx(values.tolist(), rel=0.01)
    assert said(curve.notes, "'num_tokens' starts again 2 times, first at step 215, and is counted on: no step was repeated")
