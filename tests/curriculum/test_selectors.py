"""Selectors: which prompts a later epoch does without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.curriculum.selectors.difficulty import Difficulty
from scalerl.curriculum.selectors.no_positive_resampling import NoPositiveResampling
from scalerl.curriculum.selectors.uniform import Uniform


@pytest.mark.parametrize(
    ("num_passed", "num_graded", "left_out"), [(9, 10, True), (8, 10, False), (10, 10, True), (15, 16, True), (7, 8, False), (0, 0, False)]
)
def test_case_a6_a_prompt_that_reached_the_threshold_is_left_out(num_passed, num_graded, left_out):
    assert NoPositiveResampling().leaves_out(num_passed, num_graded) is left_out


@given(num_graded=st.integers(1, 64), data=st.data())
def test_a_rate_that_equals_the_threshold_reaches_it(num_graded, data):
    """The quotient of the counts is the double that a person's decimal fraction is read as; one completion less is below."""
    num_passed = data.draw(st.integers(1, num_graded))
    selector = NoPositiveResampling(threshold=num_passed / num_graded)
    assert selector.leaves_out(num_passed, num_graded)
    assert selector.leaves_out(3 * num_passed, 3 * num_graded)
    assert not selector.leaves_out(num_passed - 1, num_graded)


@pytest.mark.parametrize("tenths", range(1, 11))
def test_decimal_thresholds_are_reached_by_tenths(tenths):
    selector = NoPositiveResampling(threshold=float(f"{tenths / 10:.1f}"))
    assert selector.leaves_out(tenths, 10)
    assert selector.leaves_out(7 * tenths, 70)


@pytest.mark.parametrize(("num_passed", "num_graded"), [(0, 0), (0, 8), (8, 8)])
def test_uniform_leaves_nothing_out(num_passed, num_graded):
    assert not Uniform().leaves_out(num_passed, num_graded)


@pytest.mark.parametrize(
    ("num_passed", "num_graded", "epochs_ago", "left_out"),
    [
        (0, 8, 1, True),
        (8, 8, 1, True),
        (1, 8, 1, False),
        (2, 20, 1, False),
        (18, 20, 1, False),
        (19, 20, 1, True),
        (0, 0, 1, False),
        (0, 8, 2, True),
        (0, 8, 3, False),
    ],
)
def test_a_prompt_outside_of_the_window_rests_for_some_epochs(num_passed, num_graded, epochs_ago, left_out):
    selector = Difficulty(low=0.1, high=0.9, rest_epochs=2)
    assert selector.leaves_out(num_passed, num_graded, epochs_ago=epochs_ago) is left_out


def test_an_empty_window_is_refused():
    with pytest.raises(ValueError, match="is empty"):
        Difficulty(low=0.9, high=0.1)
