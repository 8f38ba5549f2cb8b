"""Dots in the right cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.reports.canvas import Canvas, Marker, Stroke, log_ticks, nice_ticks

SOLID, DASHED = Stroke("", "*"), Stroke("", ".", on=1, period=2)


def drawn(canvas):
    return [row.plain for row in canvas.rows()]


def test_a_rising_line_in_braille():
    """Four dot columns over eight dot rows: heights 0, 1/3, 2/3, 1 fall on dot rows 0, 2, 5, 7 and are joined."""
    canvas = Canvas(num_columns=2, num_rows=2, is_ascii=False)
    canvas.line(np.array([0.0, 1 / 3, 2 / 3, 1.0]), SOLID)
    assert drawn(canvas) == [" ⡜", "⡰⠁"]


def test_a_rising_line_in_ascii():
    canvas = Canvas(num_columns=3, num_rows=3, is_ascii=True)
    canvas.line(np.array([0.0, 0.5, 1.0]), SOLID)
    assert drawn(canvas) == ["  *", " * ", "*  "]


def test_a_steep_line_has_no_gap():
    canvas = Canvas(num_columns=2, num_rows=4, is_ascii=True)
    canvas.line(np.array([0.0, 1.0]), SOLID)
    assert drawn(canvas) == [" *", " *", " *", "* "]


def test_dashes_leave_gaps_and_what_lies_outside_is_not_drawn():
    canvas = Canvas(num_columns=5, num_rows=2, is_ascii=True)
    canvas.line(np.array([0.0, 0.0, 9.0, 0.0, 0.0]), DASHED)
    assert drawn(canvas) == ["     ", ".   ."]


def test_points_cover_lines_and_reach_the_corners():
    canvas = Canvas(num_columns=3, num_rows=2, is_ascii=False)
    canvas.line(np.zeros(6), SOLID)
    canvas.points(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.5]), Marker("bold", "●", "o"))
    assert drawn(canvas) == ["  ●", "●⣀⣀"]


@pytest.mark.parametrize(
    ("low", "high", "most", "ticks"),
    [
        (0.383, 0.674, 8, [0.4, 0.45, 0.5, 0.55, 0.6, 0.65]),
        (0.0, 100.0, 5, [0, 20, 40, 60, 80, 100]),
        (-0.02, 0.02, 4, [-0.02, -0.01, 0, 0.01, 0.02]),
        (0.0, 0.3, 4, [0, 0.1, 0.2, 0.3]),
        (0.0, 40.0, 8, [0, 5, 10, 15, 20, 25, 30, 35, 40]),
    ],
)
def test_ticks_are_round_numbers(low, high, most, ticks):
    assert nice_ticks(low, high, most=most) == pytest.approx(ticks)


@given(low=st.floats(-2.0, 100.0), span=st.floats(1e-3, 1e3), most=st.integers(2, 12))
def test_no_tick_lies_beyond_its_axis(low, span, most):
    assert all(low <= tick <= low + span for tick in nice_ticks(low, low + span, most=most))
    first = abs(low) + 1e-3
    assert all(first <= tick <= first + span for tick in log_ticks(first, first + span))


def test_ticks_of_a_logarithmic_axis():
    assert log_ticks(800.0, 20_000.0) == [1e3, 2e3, 5e3, 1e4, 2e4]
    assert log_ticks(1e15, 1e22) == pytest.approx([10.0**exponent for exponent in range(15, 23)])
