"""Length controls: where an interruption falls, what length costs."""

from operator import methodcaller

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scalerl.core.errors import UsageError
from scalerl.core.random import stream_key, uniform
from scalerl.objective.length_controls import LengthControl
from scalerl.objective.length_controls.interruption import Interruption
from scalerl.objective.length_controls.penalty import Penalty
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.records.rollout import Outcome, Score

LARGEST_DRAW = float(np.nextafter(1.0, 0.0))


def interruption(least: int, largest: int) -> Interruption:
    return Interruption(after_tokens=(least, largest), phrase="Time is up. </think>", answer_tokens=2)


@given(
    least=st.integers(1, 20_000), extra=st.integers(0, 20_000), draw=st.one_of(st.just(LARGEST_DRAW), st.floats(0.0, 1.0, exclude_max=True))
)
def test_an_interruption_falls_within_its_range(least, extra, draw):
    (after,) = interruption(least, least + extra).interrupts_after(np.array([draw]))
    assert least <= after <= least + extra


@given(least=st.integers(1, 20_000), extra=st.integers(0, 20_000))
def test_both_ends_of_the_range_are_met(least, extra):
    after = interruption(least, least + extra).interrupts_after(np.array([0.0, LARGEST_DRAW]))
    assert after.dtype == np.int64
    assert after.tolist() == [least, least + extra]


def test_every_place_is_as_likely():
    """30,000 draws over 3 places: 10,000 +- 5 standard deviations (82) each."""
    draws = uniform(stream_key(0, "interruption"), np.arange(30_000), 0)
    places, counts = np.unique(interruption(10, 12).interrupts_after(draws), return_counts=True)
    assert places.tolist() == [10, 11, 12]
    assert (abs(counts - 10_000) < 410).all()


def test_an_interruption_inserts_its_phrase_and_needs_room_for_the_answer():
    control = interruption(10_240, 12_288)
    assert control.insertion == "Time is up. </think>"
    assert control.least_completion_tokens == 12_290
    assert control.thinking_end == "", "none is spared unless it is said what ends thinking"
    assert control.model_copy(update={"ends_thinking": "</think>"}).thinking_end == "</think>"
    assert control.value(Score(1.0, True), 20_000) == 1.0, "brevity is not paid for"


@pytest.mark.parametrize("after_tokens", [(0, 3), (4, 3), (-1, 3)])
def test_a_range_that_is_none_is_refused(after_tokens):
    with pytest.raises(ValidationError, match="0 < least <= largest"):
        interruption(*after_tokens)


@pytest.mark.parametrize("control", [Penalty(limit_tokens=16, margin_tokens=4), Truncation()], ids=methodcaller("name"))
def test_only_an_interruption_interrupts(control):
    assert control.interrupts_after(np.zeros(3)) is None
    assert control.insertion == control.thinking_end == ""
    assert control.least_completion_tokens == 0


@pytest.mark.parametrize(
    ("num_tokens", "penalty"), [(0, 0.0), (12_288, 0.0), (12_800, -0.25), (13_312, -0.5), (14_336, -1.0), (20_000, -1.0)]
)
def test_a_penalty_is_paid_by_correct_completions_only(num_tokens, penalty):
    """L_max 14,336 and L_cache 2,048 of arXiv 2510.13786: free up to 12,288 tokens."""
    control = Penalty(limit_tokens=14_336, margin_tokens=2_048)
    assert control.value(Score(1.0, True), num_tokens) == 1.0 + penalty
    assert control.value(Score(-1.0, False), num_tokens) == -1.0
    assert control.value(Score(0.0, False, Outcome.CUT_OFF), num_tokens) == 0.0


def test_a_penalty_on_every_length_is_refused():
    assert Penalty(limit_tokens=4, margin_tokens=4).value(Score(1.0, True), 0) == 1.0
    with pytest.raises(ValidationError, match="margin_tokens 5 is more than limit_tokens 4: an empty completion would pay"):
        Penalty(limit_tokens=4, margin_tokens=5)


@pytest.mark.parametrize("control", [Penalty(limit_tokens=16, margin_tokens=4), Truncation()], ids=methodcaller("name"))
def test_a_failed_grading_has_no_value_to_add_to(control):
    assert control.value(Score(None, None, Outcome.FAILED), 100) is None


def test_truncation_leaves_the_score_alone():
    assert Truncation().value(Score(0.5, True), 10_000) == 0.5


LEAST = {
    "interruption": {"after_tokens": [1, 1], "phrase": ".", "answer_tokens": 1, "ends_thinking": ""},
    "penalty": {"limit_tokens": 1, "margin_tokens": 1},
}
"""The smallest of every number that can be set, and the shortest phrase."""


@pytest.mark.parametrize("name", LEAST)
def test_the_least_that_can_be_set(name):
    assert LengthControl.family.select({"type": name, **LEAST[name]}).selection() == {"type": name, **LEAST[name]}


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("interruption", "phrase", ""), ("interruption", "answer_tokens", 0), ("penalty", "limit_tokens", 0), ("penalty", "margin_tokens", 0)],
)
def test_less_than_that_is_refused(name, key, value):
    with pytest.raises(UsageError, match=f"its {key} cannot be used"):
        LengthControl.family.select({"type": name, **LEAST[name], key: value})
