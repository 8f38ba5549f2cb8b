"""Forced interruption: the phrase's ids, its mask, its place in the budget, and what is conditioned on it."""

import copy

import numpy as np
import pytest

from scalerl.core.errors import DataError, UsageError
from scalerl.core.random import stream_key, uniform
from scalerl.objective.length_controls.interruption import Interruption
from scalerl.testing.engines import noisy
from tests.engines.tiny import assert_log_probs, ragged_requests, request, run

PHRASE = "=-="
CONTROL = Interruption(after_tokens=(3, 6), phrase=PHRASE, answer_tokens=4)


@pytest.fixture
def phrase(policy):
    return policy.tokenizer.encode(PHRASE, add_special_tokens=False)


def test_the_phrase_is_inserted_masked_and_conditioned_on(build, policy, phrase):
    groups = run(build(policy, control=CONTROL, completion_tokens=16, seed=2), ragged_requests(policy, num_completions=8))
    num_interrupted = 0
    for group in groups:
        draws = uniform(stream_key(2, "sample interruption", group.prompt.id, 0), np.arange(8), 0)
        after = CONTROL.interrupts_after(draws)
        for completion, start in zip(group.completions, after, strict=True):
            if not completion.num_inserted:
                assert completion.finished
                assert len(completion.token_ids) <= start
                continue
            num_interrupted += 1
            assert np.flatnonzero(~completion.trainable).tolist() == [start, start + 1, start + 2]
            assert completion.token_ids[start : start + 3].tolist() == phrase
            num_after = len(completion.token_ids) - start - 3
            assert completion.finished or num_after == 4
            assert 1 <= num_after <= 4
            assert sum(count for _, count in completion.version_runs) == len(completion.token_ids)
            assert PHRASE in completion.text
    assert num_interrupted > 10
    assert_log_probs(policy, groups)  # the oracle sees the phrase, so later tokens are conditioned on it


def test_the_budget_bounds_what_follows_the_phrase(build, policy):
    groups = run(build(policy, control=CONTROL, completion_tokens=10), ragged_requests(policy, num_completions=8))
    lengths = [len(completion.token_ids) for group in groups for completion in group.completions]
    assert max(lengths) == 10
    assert_log_probs(policy, groups)


def test_a_phrase_of_one_token_needs_no_pass_of_its_own_tokens(build, policy):
    control = Interruption(after_tokens=(2, 2), phrase="=", answer_tokens=2)
    groups = run(build(policy, control=control), ragged_requests(policy))
    assert any(completion.num_inserted == 1 for group in groups for completion in group.completions)
    assert_log_probs(policy, groups)


def test_tokens_before_the_phrase_are_those_of_a_run_without_it(build, policy):
    free = {group.id: group for group in run(build(policy), ragged_requests(policy))}
    for group in run(build(policy, control=CONTROL), ragged_requests(policy)):
        for completion, uninterrupted in zip(group.completions, free[group.id].completions, strict=True):
            num_before = completion.trainable.argmin() if completion.num_inserted else len(completion.token_ids)
            assert completion.token_ids[:num_before].tolist() == uninterrupted.token_ids[:num_before].tolist()


@pytest.mark.parametrize("ends_thinking", ["=", "7.", "-2-"])
def test_a_completion_that_ended_its_thinking_itself_is_not_interrupted(build, policy, ends_thinking):
    control = CONTROL.model_copy(update={"ends_thinking": ends_thinking})
    end = policy.tokenizer.encode(ends_thinking, add_special_tokens=False)
    requests = ragged_requests(policy, num_completions=16)
    # Fewer slots than completions: rows are used again, and what ended in them before says nothing about who is there now.
    free = {group.id: group for group in run(build(policy, completion_tokens=16, slots=40), requests)}
    num_spared = num_interrupted = 0
    for group in run(build(policy, control=control, completion_tokens=16, slots=40), requests):
        after = control.interrupts_after(uniform(stream_key(0, "sample interruption", group.prompt.id, 0), np.arange(16), 0))
        for completion, uninterrupted, place in zip(group.completions, free[group.id].completions, after, strict=True):
            ids, still_thinks = uninterrupted.token_ids.tolist(), len(uninterrupted.token_ids) > place
            spared = any(ids[start : start + len(end)] == end for start in range(place - len(end) + 1))
            assert completion.num_inserted == (3 if still_thinks and not spared else 0)
            if spared:
                assert completion.token_ids.tolist() == ids
            num_spared += spared and still_thinks
            num_interrupted += completion.num_inserted > 0
    assert num_spared >= 1
    assert num_interrupted > 10


def test_an_end_of_thinking_longer_than_any_completion_spares_none(build, policy):
    requests = ragged_requests(policy)
    without, with_end = (
        [completion.token_ids.tolist() for group in run(build(policy, control=control), requests) for completion in group.completions]
        for control in (CONTROL, CONTROL.model_copy(update={"ends_thinking": "=" * 40}))
    )
    assert with_end == without


def test_an_end_of_thinking_that_the_tokenizer_cannot_write_is_told(build, policy):
    with pytest.raises(DataError, match=r"^length\.control\.ends_thinking: the model's tokenizer cannot encode '</think>'"):
        build(policy, control=CONTROL.model_copy(update={"ends_thinking": "</think>"}), completion_tokens=16)


def test_reprefill_computes_inserted_tokens_too(build, policy):
    later = copy.deepcopy(policy)
    later.load_tensors(noisy(policy))
    policy.tokenizer.eos_token = policy.module.generation_config.eos_token_id = policy.config.eos_token_id = None
    control = Interruption(after_tokens=(2, 2), phrase=PHRASE, answer_tokens=4)
    loop = build(policy, control=control, kv="reprefill")
    loop.submit([request(policy, 0, "1+2:")])
    loop.step()
    loop.step()
    loop.take_weights(1, later.tensors(), between=lambda: None)
    (group,) = run(loop)
    for completion in group.completions:
        assert completion.version_runs == ((0, 5), (1, 4))
        completion.trainable[:5] = False  # those of version 0 are checked elsewhere
        completion.log_probs[:5] = 0.0
    assert_log_probs(later, [group])


def test_an_interruption_that_leaves_no_answer_is_refused(build, policy):
    with pytest.raises(UsageError, match="6 thinking tokens and a phrase of 3 leave nothing of 9 for an answer"):
        build(policy, control=CONTROL, completion_tokens=9)
