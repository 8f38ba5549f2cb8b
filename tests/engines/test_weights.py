"""Weights that change in flight: kv keep, reprefill and drain against references that know which version computed what."""

import copy

import numpy as np
import pytest

from scalerl.objective.length_controls.interruption import Interruption
from scalerl.records.cost import Activity
from scalerl.testing.engines import kept_log_probs, noisy, token_versions
from tests.engines.tiny import RAGGED, assert_log_probs, full_log_probs, ragged_requests, request, run


@pytest.fixture
def versions(policy):
    """The policy under the weights of versions 0 to 5, each a model of its own."""
    policies = [copy.deepcopy(policy) for _ in range(6)]
    for version in range(1, 6):
        policies[version].load_tensors(noisy(policy, seed=version))
    return policies


def run_with_pushes(loop, versions, requests, *, steps=(3, 5)):
    """Versions 1, 2 ... arrive after so many steps."""
    loop.submit(requests)
    finished, step = [], 0
    while loop.num_in_flight:
        if step in steps:
            version = loop.version + 1
            finished += loop.take_weights(version, versions[version].tensors(), between=lambda: None)
        finished += loop.step()
        step += 1
    return finished


def recomputed_log_probs(versions, group, completion):
    """(T,) log-probs of each token under the version that sampled it, the whole sequence computed by that version alone."""
    by_version = np.stack([full_log_probs(version, group, completion) for version in versions])
    return by_version[token_versions(completion), np.arange(len(completion.token_ids))]


def test_keep_goes_on_with_the_keys_of_older_versions(build, policy, versions):
    groups = run_with_pushes(build(policy, slots=10), versions, ragged_requests(policy))
    completions = [(group, completion) for group in groups for completion in group.completions]
    for group, completion in completions:
        np.testing.assert_allclose(completion.log_probs, kept_log_probs(versions, group, completion), atol=1e-5)
    assert any(len(completion.version_runs) == 3 for _, completion in completions)
    spanning = [(group, completion) for group, completion in completions if completion.first_version != completion.last_version]
    drift = [np.abs(full_log_probs(versions[c.last_version], g, c)[-1] - c.log_probs[-1]) for g, c in spanning]
    assert max(drift) > 1e-3, "stale keys are visible in this test, or it would show nothing"


def test_reprefill_is_exact_under_the_new_weights(build, policy, versions):
    groups = run_with_pushes(build(policy, slots=10, kv="reprefill"), versions, ragged_requests(policy))
    num_spanning = 0
    for group in groups:
        for completion in group.completions:
            np.testing.assert_allclose(completion.log_probs, recomputed_log_probs(versions, group, completion), atol=1e-5)
            num_spanning += len(completion.version_runs) > 1
    assert num_spanning > 3


@pytest.mark.parametrize(("kv", "reference"), [("keep", kept_log_probs), ("reprefill", recomputed_log_probs)])
def test_traces_that_span_many_versions_with_admissions_shared_prompts_and_phrases_in_between(build, policy, versions, kv, reference):
    policy.tokenizer.eos_token = policy.module.generation_config.eos_token_id = policy.config.eos_token_id = None
    control = Interruption(after_tokens=(3, 9), phrase="=-=", answer_tokens=6)
    requests = [request(policy, group, RAGGED[group % 4], num_completions=4) for group in range(7)]  # some prompts come again, later
    loop = build(policy, control=control, completion_tokens=18, slots=10, kv=kv)
    groups = run_with_pushes(loop, versions, requests, steps=(2, 5, 7, 10, 13))
    completions = [(group, completion) for group in groups for completion in group.completions]
    for group, completion in completions:
        expected = np.where(completion.trainable, reference(versions, group, completion), 0.0)
        np.testing.assert_allclose(completion.log_probs, expected, atol=1e-5)
    assert max(len(completion.version_runs) for _, completion in completions) >= 5
    assert sum(len(completion.version_runs) >= 4 for _, completion in completions) >= 8
    assert all(completion.num_inserted == 3 for _, completion in completions)
    assert {completion.first_version for _, completion in completions} >= {0, 5}
    interrupted_late = [c for _, c in completions if token_versions(c)[c.trainable.argmin()] > c.first_version]
    assert interrupted_late, "some phrase comes after a push"
    other = {"keep": recomputed_log_probs, "reprefill": kept_log_probs}[kv]
    differences = [np.abs(other(versions, g, c) - c.log_probs)[c.trainable].max() for g, c in completions if len(c.version_runs) > 1]
    assert max(differences) > 1e-3, "the other policy's log-probs differ, or this would show nothing"


def test_drain_ends_what_is_in_flight_first_and_the_queue_waits(build, policy, versions):
    loop = build(policy, slots=10, kv="drain")
    loop.submit(ragged_requests(policy))
    finished = [group for _ in range(3) for group in loop.step()]
    steps = []
    drained = loop.take_weights(1, versions[1].tensors(), between=lambda: steps.append(loop.version))
    longest = max(len(completion.token_ids) for group in finished + drained for completion in group.completions)
    assert steps == [0] * (longest - 3), "whoever waits hears of every step"
    assert loop.version == 1
    assert {group.id for group in finished + drained} == {0, 1}  # 10 slots hold two groups of 4
    later = run(loop)
    assert_log_probs(versions[0], finished + drained)
    assert_log_probs(versions[1], later)
    assert {c.version_runs for group in later for c in group.completions} == {
        ((1, len(c.token_ids)),) for g in later for c in g.completions
    }
    assert loop.take_weights(2, versions[2].tensors(), between=lambda: None) == []


@pytest.mark.parametrize("kv", ["keep", "reprefill", "drain"])
def test_a4_a_new_request_never_sees_keys_of_older_weights(build, policy, versions, kv):
    loop = build(policy, kv=kv)
    loop.submit([request(policy, 0, "12+34*5:")])
    loop.step()
    loop.take_weights(1, versions[1].tensors(), between=lambda: None)
    loop.submit([request(policy, 1, "12+34*5:")])
    groups = {group.id: group for group in run(loop)}
    assert_log_probs(versions[1], [groups[1]])


def test_a4_reprefill_computes_all_tokens_but_the_last_and_books_them_apart(build, policy, meter, versions):
    policy.tokenizer.eos_token = policy.module.generation_config.eos_token_id = policy.config.eos_token_id = None
    loop = build(policy, kv="reprefill")
    loop.submit([request(policy, 0, "123456789:", num_completions=1)])
    for _ in range(3):
        loop.step()
    meter.collect()
    loop.take_weights(1, versions[1].tensors(), between=lambda: None)
    (cost,) = meter.collect()
    # A prompt of 10 tokens with 3 generated ones: 12 are computed again, the last one is the next step's input.
    assert (cost.activity, cost.tokens) == (Activity.REPREFILL, 12)
    assert (cost.flops, cost.overhead_flops) == (
        policy.flops.forward(num_tokens=12, num_pairs=78, num_logits=0),
        (45 + 1) * policy.flops.attention_per_pair,  # later keys of the prompt, and for the first of two tokens the second
    )
    loop.step()
    assert [(c.activity, c.tokens) for c in meter.collect()] == [(Activity.GENERATE, 1)]


def test_a4_a_prompt_is_computed_anew_once_for_its_group(build, policy, meter, versions):
    policy.tokenizer.eos_token = policy.module.generation_config.eos_token_id = policy.config.eos_token_id = None
    loop = build(policy, kv="reprefill")
    loop.submit([request(policy, 0, "123456789:", num_completions=4), request(policy, 1, "7:", num_completions=2)])
    for _ in range(3):
        loop.step()
    meter.collect()
    loop.take_weights(1, versions[1].tensors(), between=lambda: None)
    (cost,) = meter.collect()
    # Prompts of 10 and 2 tokens, and two of three generated ones in each of six rows.
    assert (cost.activity, cost.tokens) == (Activity.REPREFILL, 10 + 2 + 6 * 2)
    pairs = 10 * 11 // 2 + 4 * (11 + 12) + 2 * 3 // 2 + 2 * (3 + 4)
    assert cost.flops == policy.flops.forward(num_tokens=24, num_pairs=pairs, num_logits=0)


def test_new_weights_reach_the_cached_head(build, policy, versions):
    loop = build(policy)
    loop.take_weights(1, versions[1].tensors(), between=lambda: None)
    assert_log_probs(versions[1], run(loop, ragged_requests(policy)))
