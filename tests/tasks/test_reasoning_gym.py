"""The task that makes prompts with reasoning-gym."""

from __future__ import annotations

import math
import sys
from itertools import repeat
from pathlib import Path

import pytest
import reasoning_gym

from scalerl.core.errors import DataError, UnknownNameError, UsageError
from scalerl.core.random import stream_key
from scalerl.recipes import resolve
from scalerl.records.events import Evaluated
from scalerl.runs import RunDirectory
from scalerl.runs.training import train
from scalerl.tasks import Noise, Split
from scalerl.tasks.reasoning_gym import ReasoningGym

SUMS = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}


def sums(**settings: object) -> ReasoningGym:
    return ReasoningGym.model_validate({"dataset": "chain_sum", "parameters": SUMS, "num_held_out": 40, "num_prompts": 100, **settings})


def all_examples(task):
    return [*task.examples(Split.HELD_OUT), *task.examples(Split.TRAIN)]


def test_splits_have_the_sizes_asked_for_and_no_question_in_common():
    task = sums()
    examples = all_examples(task)
    assert (len(task.examples(Split.HELD_OUT)), len(task.examples(Split.TRAIN))) == (40, 100)
    assert len({example.text for example in examples}) == len({example.id for example in examples}) == 140


def test_an_example_is_the_packages_own_entry_of_the_number_in_its_id():
    seed, _ = stream_key(0, "reasoning_gym", "chain_sum", 0)
    block = reasoning_gym.create_dataset("chain_sum", seed=seed, size=1024, **SUMS)
    for example in all_examples(sums()):
        entry = block[int(example.id.removeprefix("chain_sum-"))]
        assert (example.text, example.answer) == (entry["question"], entry["answer"])


def test_held_out_prompts_do_not_depend_on_the_number_trained_on():
    assert sums(num_prompts=7).examples(Split.HELD_OUT) == sums(num_prompts=2000).examples(Split.HELD_OUT)


def test_another_data_seed_makes_other_prompts():
    here, there = ({example.text for example in sums(data_seed=seed).examples(Split.HELD_OUT)} for seed in (0, 1))
    assert len(here & there) < 10


def test_the_second_call_costs_nothing(monkeypatch):
    examples = sums().examples(Split.TRAIN)
    monkeypatch.setattr(reasoning_gym, "create_dataset", None)
    assert sums().examples(Split.TRAIN) == examples


def test_its_grader_accepts_its_gold_answers():
    sums().check_gold_answers(num_examples=100)


def test_shared_text_is_left_out_at_both_ends_and_nothing_else():
    settings = {"dataset": "gcd", "parameters": {"max_value": 99}}
    kept, shortened = (all_examples(sums(**settings, shared_text=how)) for how in ("keep", "leave_out"))
    assert [(example.id, example.answer) for example in kept] == [(example.id, example.answer) for example in shortened]
    shared = {
        tuple(whole.text.split(short.text)) for whole, short in zip(kept, shortened, strict=True) if whole.text.count(short.text) == 1
    }
    assert shared == {("Find the Greatest Common Divisor (GCD) of these numbers: ", ". Give only the GCD as your final answer.")}
    sums(**settings, shared_text="leave_out").check_gold_answers()


def test_the_alphabet_writes_every_question_and_answer_in_order():
    task = sums()
    alphabet = task.alphabet()
    assert list(alphabet) == sorted(set(alphabet))
    assert set(alphabet) == {character for example in all_examples(task) for character in example.text + example.answer}


def test_a_demonstration_is_the_answer_or_at_the_rate_of_errors_another_examples():
    task = sums()
    example = task.examples(Split.TRAIN)[3]
    assert task.demonstration(example, noise=Noise(error_rate=0.3), draw=iter([0.3]).__next__) == example.answer
    other = task.demonstration(example, noise=Noise(error_rate=0.3), draw=iter([0.29, 0.999]).__next__)
    assert other == task.examples(Split.TRAIN)[99].answer
    assert task.demonstration(example, noise=Noise(), draw=repeat(0.0).__next__) == example.answer


CHAIN_SUM = "reasoning-gym's 'chain_sum': "
REFUSED = [
    (
        {"dataset": "chain_sums"},
        UnknownNameError,
        "task.dataset: there is no data set of reasoning-gym 'chain_sums'; did you mean 'chain_sum'",
    ),
    ({"parameters": {"min_term": 2}}, UnknownNameError, f"{CHAIN_SUM}there is no parameter 'min_term'; did you mean 'min_terms'"),
    ({"parameters": {"seed": 3}}, UnknownNameError, f"{CHAIN_SUM}there is no parameter 'seed'"),
    (
        {"parameters": {"min_terms": 3, "max_terms": 2}},
        UsageError,
        f"{CHAIN_SUM}its parameters do not fit (max_terms must be >= min_terms)",
    ),
    ({"parameters": {"min_terms": "two"}}, UsageError, f"{CHAIN_SUM}its parameters do not fit ('>' not supported"),
    (
        {"parameters": {**SUMS, "max_digits": 1}, "num_prompts": 500},
        DataError,
        f"{CHAIN_SUM}2048 draws gave 200 different questions, and 540 are asked for; lower task.num_prompts",
    ),
    ({"dataset": "boxnet", "parameters": {}}, DataError, "reasoning-gym's 'boxnet': its entries have no gold answers; choose another"),
    ({"dataset": "word_ladder", "parameters": {}}, UsageError, "set the environment variable PYTHONHASHSEED=0"),
]


@pytest.mark.parametrize(("settings", "kind", "sentence"), REFUSED, ids=[str(settings) for settings, _, _ in REFUSED])
def test_what_makes_no_task_is_one_sentence(settings, kind, sentence, monkeypatch):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(kind) as refused:
        sums(**settings).examples(Split.TRAIN)
    assert sentence in str(refused.value)


def test_a_set_that_follows_string_hashes_is_made_where_they_are_fixed(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    ReasoningGym(dataset="ransom_note", num_held_out=4, num_prompts=4).check_gold_answers()


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UsageError, match=r"needs the package reasoning-gym, .*pip install 'scalerl\[train\]'"):
        sums(data_seed=12345).examples(Split.TRAIN)


UNUSABLE = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour", "composite"}
"""Without gold answers, or (composite) without anything to do unless it is told."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # The package's own.
def test_every_other_data_set_of_the_package_makes_prompts_whose_gold_answers_score(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    for name in sorted(set(reasoning_gym.factory.DATASETS) - UNUSABLE):
        ReasoningGym(dataset=name, num_held_out=4, num_prompts=4).check_gold_answers()


@pytest.mark.slow
def test_rl_raises_the_pass_rate_of_a_noisy_base_beyond_its_interval(tmp_path):
    """`scalerl train scalerl --scale laptop-reasoning-gym`: about 100 CPU-seconds, half of them for the base."""
    folder = train(resolve("scalerl", scale="laptop-reasoning-gym"), tmp_path / "run").folder
    base, trained = pass_rates(folder)[0], pass_rates(folder)[-1]
    assert 0.3 < base < 0.6
    assert trained - base > 0.1 + 1.96 * math.sqrt((base * (1 - base) + trained * (1 - trained)) / 1024)


def pass_rates(folder: Path) -> list[float]:
    evaluations = [entry.event for entry in RunDirectory.open(folder).events() if isinstance(entry.event, Evaluated)]
    assert {evaluation.num_graded for evaluation in evaluations} == {1024}
    return [evaluation.num_passed / evaluation.num_graded for evaluation in evaluations]
