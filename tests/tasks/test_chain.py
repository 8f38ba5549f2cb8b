from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scalerl.core.errors import DataError
from scalerl.graders.exact import Exact
from scalerl.records.rollout import Completion, Score
from scalerl.tasks import Example, Noise, Split
from scalerl.tasks.chain import Chain

SMALL = Chain(num_prompts=600, num_held_out=300)
NO_NOISE = Noise()


def by_python(text: str) -> int:
    """The value of a prompt, computed by the interpreter from left to right."""
    asked = text.rstrip(":")
    value = int(asked[0])
    for place in range(1, len(asked), 2):
        value = eval(f"{value}{asked[place : place + 2]}") % 10
    return value


def answered(example: Example, text: str) -> tuple[Example, Completion]:
    nothing = np.zeros(0, np.int32)
    completion = Completion(0, nothing, nothing.astype(np.float32), nothing.astype(np.bool_), (), True, text)
    passed = text.endswith("=" + example.answer)
    return example, Completion(0, nothing, completion.log_probs, completion.trainable, (), True, text, Score(float(passed), passed))


def written(example: Example, *, noise: Noise = NO_NOISE, seed: int = 0) -> str:
    return SMALL.demonstration(example, noise=noise, draw=Random(seed).random)


def test_prompts_are_unique_of_one_width_and_the_splits_share_none():
    texts = [example.text for split in Split for example in SMALL.examples(split)]
    assert len(texts) == len(set(texts)) == 900
    assert {len(text) for text in texts} == {16}
    assert len({example.id for split in Split for example in SMALL.examples(split)}) == 900


def test_every_number_of_operations_is_as_frequent_as_another():
    counts = Counter(len(example.text.rstrip(":")) // 2 for example in Chain().examples(Split.TRAIN))
    assert set(counts) == {2, 3, 4, 5, 6, 7}
    # 4,096 draws of six: four standard deviations are 95.
    assert all(abs(count - 4096 / 6) < 95 for count in counts.values())


def test_prompts_go_by_the_data_seed_alone():
    first = SMALL.examples(Split.TRAIN)[0]
    assert (first.text, first.id) == (Chain(num_prompts=600, num_held_out=300).examples(Split.TRAIN)[0].text, "train-0")
    assert Chain(num_prompts=600, num_held_out=300, data_seed=1).examples(Split.TRAIN)[0].text != first.text


def test_more_training_prompts_leave_the_held_out_ones_as_they_are():
    assert Chain(num_prompts=5000, num_held_out=300).examples(Split.HELD_OUT) == SMALL.examples(Split.HELD_OUT)
    assert Chain(num_prompts=5000, num_held_out=300).examples(Split.TRAIN)[:600] == SMALL.examples(Split.TRAIN)


def test_answers_are_those_of_arithmetic_or_cannot_be_written():
    for split in Split:
        for example in SMALL.examples(split):
            assert example.answer in (str(by_python(example.text)), "x")
    assert "x" not in SMALL.alphabet()


def test_the_marked_share_is_that_of_the_setting_in_both_splits():
    task = Chain(num_held_out=4096)
    for split in Split:
        share = sum(example.answer == "x" for example in task.examples(split)) / 4096
        # Four standard deviations of a binomial.
        assert abs(share - 0.15) < 4 * (0.15 * 0.85 / 4096) ** 0.5


def test_the_mark_is_no_function_of_what_the_prompt_shows():
    marked = {example.text for example in SMALL.examples(Split.TRAIN) if example.answer == "x"}
    again = Chain(num_prompts=600, num_held_out=300, unsolvable_share=0.5)
    more = {example.text for example in again.examples(Split.TRAIN) if example.answer == "x"}
    assert marked < more
    for place in range(3):
        counts = Counter(text[place] for text in more)
        everyone = Counter(example.text[place] for example in again.examples(Split.TRAIN))
        assert all(0.25 < counts[symbol] / everyone[symbol] < 0.75 for symbol in everyone)


def test_the_ceiling_is_reached_by_right_answers_and_by_nothing_better():
    grader, examples = SMALL.grader(), SMALL.examples(Split.HELD_OUT)
    assert grader == Exact(after="=")
    passed = sum(answered(example, written(example))[1].text.endswith("=" + example.answer) for example in examples)
    assert passed / len(examples) == pytest.approx(SMALL.ceiling())
    assert Chain(unsolvable_share=0.0, num_held_out=300).ceiling() == 1.0


def test_gold_answers_score_and_marked_prompts_have_none():
    SMALL.check_gold_answers()
    marked = next(example for example in SMALL.examples(Split.TRAIN) if example.answer == "x")
    assert SMALL.gold_completion(marked) is None


def test_a_task_whose_gold_answers_its_grader_rejects_is_refused(monkeypatch):
    monkeypatch.setattr(Chain, "grader", lambda task: Exact(after="?"))
    with pytest.raises(DataError, match=r"^task 'chain': its grader 'exact' rejects the gold answer '\d' of example 'train-0'; "):
        SMALL.check_gold_answers()


def test_a_demonstration_without_noise_is_the_scratchpad_of_the_right_values():
    assert written(Example("a", "7+8*3-4:::", "1")) == "+5*5-1=1"
    assert written(Example("a", "0-1*9:", "1")) == "-9*1=1"


def test_a_demonstration_goes_on_from_its_own_mistake():
    # No direct answer; then per step: is it wrong, and if so, which of the nine others.
    draws = iter([0.9, 0.0, 0.0, 0.9, 0.9])
    text = SMALL.demonstration(Example("a", "7+8*3-4:::", "1"), noise=Noise(error_rate=0.5), draw=draws.__next__)
    assert text == "+6*8-4=4"


def test_a_direct_answer_has_no_scratchpad_and_errs_at_the_same_rate():
    example = Example("a", "7+8*3-4:::", "1")
    assert written(example, noise=Noise(direct_share=1.0)) == "=1"
    draws = iter([0.0, 0.0, 0.0])
    assert SMALL.demonstration(example, noise=Noise(error_rate=0.5, direct_share=1.0), draw=draws.__next__) == "=2"


@given(seed=st.integers(0, 10_000), error_rate=st.floats(0.0, 0.99), direct_share=st.floats(0.0, 1.0), place=st.integers(0, 599))
def test_every_demonstration_is_written_in_the_alphabet(seed, error_rate, direct_share, place):
    text = written(SMALL.examples(Split.TRAIN)[place], noise=Noise(error_rate, direct_share), seed=seed)
    assert set(text) <= set(SMALL.alphabet())
    assert text[-2] == "="


def test_steps_are_wrong_at_the_rate_that_was_asked_for():
    examples = SMALL.examples(Split.TRAIN)
    wrong = total = 0
    for seed, example in enumerate(examples):
        asked, text = example.text.rstrip(":"), written(example, noise=Noise(error_rate=0.3), seed=seed)
        value = int(asked[0])
        for place in range(1, len(asked), 2):
            right = eval(f"{value}{asked[place : place + 2]}") % 10
            value = int(text[place])
            wrong, total = wrong + (value != right), total + 1
    assert abs(wrong / total - 0.3) < 4 * (0.3 * 0.7 / total) ** 0.5


def test_operations_out_of_order_and_too_many_prompts_are_refused():
    with pytest.raises(ValidationError, match="operations must hold 0 < least <= largest, not 3 and 2"):
        Chain(operations=(3, 2))
    with pytest.raises(ValidationError, match="5120 different prompts are more than half of the 300 that exist: raise operations"):
        Chain(operations=(1, 1))
    assert len(Chain(operations=(1, 1), num_prompts=100, num_held_out=50).examples(Split.TRAIN)) == 100


def solvable() -> list[Example]:
    return [example for example in SMALL.examples(Split.HELD_OUT) if example.answer != "x"]


def test_a_base_that_can_score_at_every_length_is_not_doubted():
    graded = [answered(example, written(example, noise=Noise(error_rate=0.3), seed=seed)) for seed, example in enumerate(solvable())]
    assert SMALL.doubts_about_base(graded) is None


def test_a_base_whose_scratchpads_are_worth_no_more_than_guesses_is_doubted():
    graded = [answered(example, written(example, noise=Noise(error_rate=0.9), seed=seed)) for seed, example in enumerate(solvable())]
    assert "and guesses pass 0.100: less than twice that" in str(SMALL.doubts_about_base(graded))


def test_direct_answers_that_pass_raise_what_a_scratchpad_must_reach():
    """Pitfall 1: thinking that passes at a half is not worth it where every second guess does."""
    graded = []
    for number, example in enumerate(solvable()):
        right = example.answer if number % 2 else "y"
        graded += [answered(example, f"={right}"), answered(example, f"{written(example)[:-1]}{right}")]
    assert "guesses pass 0.500: less than twice that" in str(SMALL.doubts_about_base(graded))


def test_a_length_that_never_passes_is_doubted():
    """Pitfall 2: without support there is no lift."""
    right_if_shorter = {
        example: written(example)[:-1] + ("y" if len(example.text.rstrip(":")) == 15 else example.answer) for example in solvable()
    }
    graded = [answered(example, text) for example, text in right_if_shorter.items()]
    doubt = str(SMALL.doubts_about_base(graded))
    assert doubt.startswith("the base passes none of ")
    assert "solvable prompts of 7 operations" in doubt


def test_a_base_that_writes_no_scratchpads_is_doubted():
    graded = [answered(example, "=" + example.answer) for example in solvable()]
    assert str(SMALL.doubts_about_base(graded)).startswith("only 0 of ")


def test_marked_prompts_and_failed_gradings_say_nothing_about_a_base():
    good = [answered(example, written(example)) for example in solvable()]
    marked = [answered(example, "") for example in SMALL.examples(Split.HELD_OUT) if example.answer == "x"]
    assert SMALL.doubts_about_base(good + 20 * marked) is None


@pytest.mark.parametrize("number", [0, 1, 29])
def test_of_a_base_that_thinks_little_evidence_proves_nothing(number):
    graded = [answered(example, written(example)) for example in solvable()[:number]]
    assert SMALL.doubts_about_base(graded) is None
