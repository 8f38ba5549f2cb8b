from __future__ import annotations

import numpy as np
import pytest

from scalerl.graders.exact import Exact
from scalerl.records.rollout import Completion, Outcome, Prompt, Score


def completion(text: str, *, finished: bool = True) -> Completion:
    nothing = np.zeros(0, np.int32)
    return Completion(0, nothing, nothing.astype(np.float32), nothing.astype(np.bool_), (), finished, text)


def graded(text: str, *, gold: str = "7", after: str = "=", finished: bool = True) -> Score:
    prompt = Prompt(id="a", task="t", text="3+4", token_ids=(), answer=gold)
    return Exact(after=after).grade(prompt, completion(text, finished=finished))


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("+7=7", Score(1.0, True)),
        ("+7=8", Score(0.0, False)),
        ("+7=7=8", Score(0.0, False)),
        ("+7=8=7", Score(1.0, True)),
        ("+7= 7\n", Score(1.0, True)),
        ("=77", Score(0.0, False)),
        ("7", Score(0.0, False, Outcome.UNPARSED)),
        ("+7=", Score(0.0, False, Outcome.UNPARSED)),
        ("+7=7=", Score(0.0, False, Outcome.UNPARSED)),
        ("", Score(0.0, False, Outcome.UNPARSED)),
    ],
)
def test_the_answer_is_what_follows_the_last_marker(text, score):
    assert graded(text) == score


@pytest.mark.parametrize("text", ["+7=7", "+7", ""])
def test_a_completion_that_did_not_stop_scores_the_minimum_whatever_it_says(text):
    assert graded(text, finished=False) == Score(0.0, False, Outcome.CUT_OFF)


def test_without_a_marker_the_whole_completion_is_the_answer():
    assert graded(" 7 ", after="").passed is True
    assert graded("=7", after="").passed is False
    assert graded(" ", after="").outcome is Outcome.UNPARSED


def test_the_gold_answer_is_stripped_too():
    assert graded("=7", gold=" 7\n").passed is True


def test_every_answer_has_a_value_so_that_silence_gains_nothing():
    values = [graded(text, finished=finished).value for text in ("=7", "=8", "") for finished in (True, False)]
    assert values == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
