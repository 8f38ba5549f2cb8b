"""The grader that asks a data set's own scorer."""

from __future__ import annotations

import pytest

from scalerl.core.errors import UsageError
from scalerl.records.rollout import Outcome, Prompt
from scalerl.tasks import Split
from scalerl.tasks.reasoning_gym import ReasoningGym
from tests.graders.completions import completion


def task_and_prompt(dataset, **settings):
    task = ReasoningGym(dataset=dataset, num_held_out=2, num_prompts=2, **settings)
    example = task.examples(Split.TRAIN)[0]
    return task, Prompt(example.id, task.name(), example.text, (), example.answer)


def test_the_gold_answer_passes_with_white_space_around_it_and_another_does_not():
    task, prompt = task_and_prompt("chain_sum")
    passed = task.grader().grade(prompt, completion(f" {prompt.answer}\n"))
    assert (passed.value, passed.passed, passed.outcome) == (1.0, True, Outcome.GRADED)
    failed = task.grader().grade(prompt, completion(str(int(prompt.answer) + 1)))
    assert (failed.passed, failed.outcome) == (False, Outcome.GRADED)
    assert failed.value is not None
    assert failed.value < 0.1


def test_an_answer_that_is_partly_right_has_a_value_and_does_not_pass():
    """spell_backward gives the share of letters in their places."""
    task, prompt = task_and_prompt("spell_backward", parameters={"min_word_len": 5, "max_word_len": 5})
    score = task.grader().grade(prompt, completion(f"{prompt.answer[:3]}??"))
    assert (score.value, score.passed) == (pytest.approx(0.6), False)


@pytest.mark.parametrize(
    ("text", "finished", "outcome"), [("gold", False, Outcome.CUT_OFF), ("", False, Outcome.CUT_OFF), (" \n", True, Outcome.UNPARSED)]
)
def test_what_gives_no_answer_gets_the_least_value(text, finished, outcome):
    task, prompt = task_and_prompt("chain_sum")
    score = task.grader().grade(prompt, completion(text.replace("gold", prompt.answer), finished=finished))
    assert (score.value, score.passed, score.outcome) == (0.0, False, outcome)


def test_an_answer_that_its_scorer_stumbles_over_gets_the_least_value_rather_than_none():
    """prime_factorization reads integers without asking first; a completion without a value would leave the loss."""
    task, prompt = task_and_prompt("prime_factorization")
    score = task.grader().grade(prompt, completion("abc"))
    assert (score.value, score.passed, score.outcome) == (0.0, False, Outcome.UNPARSED)


def test_votes_are_counted_on_whole_answers():
    grader = task_and_prompt("chain_sum")[0].grader()
    assert grader.answer(completion(" 4 \n")) == "4"
    assert grader.answer(completion("4", finished=False)) is None


@pytest.mark.parametrize("prompt", [Prompt("row-1", "prompts", "1 + 1", (), "2"), Prompt("first", "prompts", "1 + 1", (), "2")])
def test_a_prompt_of_another_task_is_refused(prompt):
    with pytest.raises(UsageError, match=f"the prompt '{prompt.id}' is none of the data set 'chain_sum'"):
        task_and_prompt("chain_sum")[0].grader().grade(prompt, completion("2"))


def test_a_prompt_of_another_seed_is_refused():
    _, prompt = task_and_prompt("chain_sum")
    task, _ = task_and_prompt("chain_sum", data_seed=1)
    with pytest.raises(UsageError, match="with these parameters and this seed"):
        task.grader().grade(prompt, completion("2"))
