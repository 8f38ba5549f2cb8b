"""CSV: delimiters, damage, and the chart export of Weights & Biases."""

from time import process_time

import pytest

from scalerl.core.errors import DataError
from scalerl.core.units import DEVICE_HOURS, STEPS
from scalerl.importers import Choice, read_curves
from tests.importers.logs import said, text

CHART = """"Step","lr-1e-6 - seed 1 - val/acc","lr-1e-6 - seed 1 - val/acc__MIN","lr-1e-6 - seed 1 - val/acc__MAX",\
"lr-3e-6 - seed 1 - val/acc","lr-3e-6 - seed 1 - val/acc__MIN","lr-3e-6 - seed 1 - val/acc__MAX"
"0","0.20","0.20","0.20","","",""
"50","0.31","0.29","0.33","0.27","0.27","0.27"
"100","NaN","NaN","NaN","0.36","0.36","0.36"
"150","0.42","0.42","0.42","","",""
"""


@pytest.mark.parametrize("content", [CHART, "\ufeff" + CHART, CHART.replace("\n", "\r\n")], ids=["plain", "bom", "crlf"])
def test_i1_wandb_chart_has_one_curve_for_each_run(tmp_path, content):
    first, second = read_curves(text(tmp_path / "chart.csv", content))
    assert [first.name, second.name] == ["lr-1e-6 - seed 1", "lr-3e-6 - seed 1"]
    assert first.metric == second.metric == "val/acc"
    assert first.compute.tolist() == [0, 50, 150]
    assert first.reward.tolist() == [0.20, 0.31, 0.42]
    assert second.compute.tolist() == [50, 100]
    assert second.reward.tolist() == [0.27, 0.36]
    assert first.axis == STEPS
    assert said(first.notes, "'Step', in steps, which are not compute")
    assert said(first.notes, "1 value of 'val/acc' left out: not a finite number")
    assert said(first.notes, "1 point of 'val/acc' averaged")
    assert not said(second.notes, "not a finite number")
    assert not said(second.notes, "averaged")


def test_i1_one_run_of_a_chart_can_be_picked(tmp_path):
    (curve,) = read_curves(text(tmp_path / "chart.csv", CHART), choice=Choice.of(where=["run=lr-3e-6 - seed 1"]))
    assert curve.reward.tolist() == [0.27, 0.36]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["log.csv", "log.txt"])
def test_delimiters_are_found(tmp_path, delimiter, name):
    content = "\n".join(["gpu_hours,pass_rate", "1,0.25", "2,0.5"]).replace(",", delimiter)
    (curve,) = read_curves(text(tmp_path / name, content))
    assert (curve.compute.tolist(), curve.reward.tolist(), curve.axis) == ([1, 2], [0.25, 0.5], DEVICE_HOURS)


def test_blank_is_absent_and_never_zero(tmp_path):
    (curve,) = read_curves(text(tmp_path / "log.csv", "gpu_hours,pass_rate\n0,0.2\n1,\n2,0.4\n3,inf\n4,-\n"))
    assert curve.reward.tolist() == [0.2, 0.4]
    assert said(curve.notes, "2 values of 'pass_rate' left out: not a finite number")


def test_ragged_rows_are_counted_and_a_cut_last_line_is_left_out(tmp_path):
    (curve,) = read_curves(text(tmp_path / "log.csv", "gpu_hours,note,pass_rate\n1,a,0.1\n2\n3,a,b,0.3\n4,a,0.4\n5,a"))
    assert curve.compute.tolist() == [1, 4]
    assert said(curve.notes, "2 lines with more or fewer cells than the header's 3, the first is line 3")
    assert said(curve.notes, "line 6 left out: the last line was cut short")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1,0.2\n2,0.3\n", "the first line names no columns"),
        ("step,acc,acc\n1,0.2,0.3\n", "2 columns are called 'acc'"),
        ("a,b\nx,y\n", "it holds no numbers"),
        ("a,b\n1,2\n", "no column looks like a reward; choose one with --y, such as 'a', 'b'"),
        ('step,note,pass_rate\n1,,0.1\n2,"open,0.2\n3,,0.3\n4,,0.4\n', "a quote on line 3 is never closed; remove or close it"),
        ('step,note,pass_rate\n1,"' + "x" * 200_000 + '",0.1\n', "line 2 is no CSV .field larger than field limit"),
        ("loss,pass_rate\n1,0.5\n", "no column looks like compute; choose one with --x"),
        ("step,pass_rate\n1,2.5\n2,-3\n", "neither a fraction nor a percentage"),
    ],
)
def test_unusable_tables_are_one_sentence(tmp_path, content, message):
    path = text(tmp_path / "log.csv", content)
    with pytest.raises(DataError, match=message) as raised:
        read_curves(path)
    assert str(raised.value).startswith(str(path))


def test_a_column_without_numbers_is_not_chosen(tmp_path):
    (curve,) = read_curves(text(tmp_path / "log.csv", "step,gpu_hours,total_flos,pass_rate\n1,,0,0.5\n"))
    assert curve.axis == STEPS


def test_a_closed_quote_may_span_lines_and_a_cut_one_is_left_out(tmp_path):
    (curve,) = read_curves(text(tmp_path / "log.csv", 'gpu_hours,pass_rate,note\n1,0.1,"two\nlines"\n2,0.2,"a"\n3,0.3,"cu'))
    assert curve.reward.tolist() == [0.1, 0.2, 0.3]
    assert said(curve.notes, "line 5 has no end")


@pytest.mark.parametrize(("tail", "rewards"), [("", [0.1, 0.2]), ("3,0.", [0.1, 0.2])], ids=["after a line", "inside a line"])
def test_nul_bytes_behind_a_killed_run_are_a_torn_tail(tmp_path, tail, rewards):
    (curve,) = read_curves(text(tmp_path / "log.csv", f"gpu_hours,pass_rate\n1,0.1\n2,0.2\n{tail}" + "\0" * 4096))
    assert curve.reward.tolist() == rewards
    assert said(curve.notes, "line 4 left out: the last line was cut short")


@pytest.mark.parametrize("name", ["log.csv", "log.txt"])
def test_blank_lines_before_the_header_are_skipped(tmp_path, name):
    (curve,) = read_curves(text(tmp_path / name, "\n  \r\ngpu_hours;pass_rate\n1;0.1\n2;0.2\n"))
    assert curve.reward.tolist() == [0.1, 0.2]


def test_a_header_of_many_columns_is_read_in_time_that_grows_with_their_number(tmp_path):
    header = ",".join(f"column_{place}" for place in range(20_000))
    path = text(tmp_path / "log.csv", f"step,acc,{header}\n1,0.5{',1' * 20_000}\n")
    started_s = process_time()
    (curve,) = read_curves(path)
    assert curve.reward.tolist() == [0.5]
    assert process_time() - started_s < 5.0  # 0.5 s; comparing each name with each other took 20 s more
