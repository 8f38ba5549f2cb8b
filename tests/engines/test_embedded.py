"""The embedded loop against a full forward pass of the Hugging Face model: log-probs, stops, budgets, order, repeatability."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.core.errors import ScalerlError, UsageError
from scalerl.core.random import stream_key, uniform
from scalerl.engines import _flight
from scalerl.engines._body import CachedBody
from scalerl.engines._sampling import sample
from scalerl.engines.embedded import Embedded
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.records.cost import Activity
from tests.engines.tiny import RAGGED, assert_log_probs, full_log_probs, ragged_requests, request, run, tiny_policy


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_log_probs_are_those_of_a_full_forward_pass(build, architecture, num_kv_heads):
    policy = tiny_policy(architecture=architecture, num_heads=4, hidden_size=64, num_kv_heads=num_kv_heads)
    groups = run(build(policy), ragged_requests(policy))
    assert sorted(group.id for group in groups) == list(range(len(RAGGED)))
    assert len({len(completion.token_ids) for group in groups for completion in group.completions}) >= 3
    assert_log_probs(policy, groups)


def test_each_token_is_the_inverse_of_the_cumulative_distribution_at_its_own_draw(build, policy):
    for group in run(build(policy, seed=5), ragged_requests(policy, epoch=2)):
        key = stream_key(5, "sample", group.prompt.id, 2)
        for completion in group.completions:
            ids = torch.tensor([[*group.prompt.token_ids, *completion.token_ids.tolist()]])
            with torch.no_grad():
                cumulative = policy.module(input_ids=ids).logits[0].double().softmax(-1).cumsum(-1)[len(group.prompt.token_ids) - 1 : -1]
            draws = uniform(key, completion.index, np.arange(len(completion.token_ids)))
            at = np.arange(len(draws)), completion.token_ids
            below = np.where(completion.token_ids > 0, cumulative.numpy()[at[0], completion.token_ids - 1], 0.0)
            assert (below - 1e-6 <= draws).all()
            assert (draws <= cumulative.numpy()[at] + 1e-6).all()


def test_a_sample_has_the_frequencies_of_its_distribution():
    logits = torch.tensor([2.0, 1.0, float("-inf"), 0.0])
    draws = torch.from_numpy(uniform(stream_key(0, "frequencies"), 0, np.arange(100_000)))
    ids, log_probs = sample(logits.expand(len(draws), -1), draws, temperature=0.5)
    expected = (logits / 0.5).softmax(0)
    np.testing.assert_allclose(np.bincount(ids.numpy(), minlength=4) / len(draws), expected.numpy(), atol=5e-3)
    np.testing.assert_allclose(log_probs.numpy(), expected.log()[ids].numpy(), rtol=1e-6)


def test_m1_log_probs_are_those_of_the_tempered_distribution(build, policy):
    _, log_prob = sample(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0.0], dtype=torch.float64), temperature=0.5)
    assert log_prob.item() == pytest.approx(-0.1429316, abs=1e-6)
    assert_log_probs(policy, run(build(policy, temperature=0.5), ragged_requests(policy)), temperature=0.5)


def test_m3_every_stop_id_ends_a_completion_and_a_stop_at_the_budget_is_no_cut(build, policy):
    stops = {*policy.tokenizer.encode("7"), *policy.tokenizer.encode("=")}
    policy.module.generation_config.eos_token_id = sorted(stops)
    groups = run(build(policy, completion_tokens=4), ragged_requests(policy, num_completions=16))
    completions = [completion for group in groups for completion in group.completions]
    all_stops = stops | {policy.tokenizer.eos_token_id}
    for completion in completions:
        is_stop = np.isin(completion.token_ids, list(all_stops))
        assert not is_stop[:-1].any()
        assert completion.finished == is_stop[-1]
        assert completion.finished or len(completion.token_ids) == 4
        assert completion.trainable.all()
    assert any(completion.finished and len(completion.token_ids) == 4 for completion in completions)
    assert not all(completion.finished for completion in completions)
    assert stops <= {int(completion.token_ids[-1]) for completion in completions}


def test_m4_ids_are_those_that_were_sampled_and_text_is_their_decoding(build, policy):
    for group in run(build(policy), ragged_requests(policy)):
        for completion in group.completions:
            assert completion.text == policy.tokenizer.decode(completion.token_ids.tolist(), skip_special_tokens=True)
            # A policy of single characters may sample <pad>, which no text brings back.
            assert completion.token_ids.dtype == np.int32
    padded = [c for g in run(build(policy, seed=1), ragged_requests(policy)) for c in g.completions if policy.pad_id in c.token_ids]
    assert padded, "some completion holds a token that its text does not"


def test_logits_are_made_for_some_rows_at_a_time_where_the_vocabulary_is_large(build, policy, meter, monkeypatch):
    requests = ragged_requests(policy, num_completions=3)
    at_once = completions_by_group(run(build(policy), requests))
    (usual,) = meter.collect()
    monkeypatch.setattr(_flight, "_LOGITS_AT_ONCE", 4 * policy.config.vocab_size)
    assert completions_by_group(run(build(policy), requests)) == at_once
    (cost,) = meter.collect()
    assert cost.flops == usual.flops


def completions_by_group(groups):
    return {group.id: [completion.token_ids.tolist() for completion in group.completions] for group in groups}


def test_tokens_do_not_depend_on_neighbours_slots_or_the_order_of_admission(build, policy):
    requests = ragged_requests(policy)
    together = completions_by_group(run(build(policy, slots=64), requests))
    cramped = completions_by_group(run(build(policy, slots=5), requests))
    backwards = completions_by_group(run(build(policy, slots=9), requests[::-1]))
    alone = {request.group: completions_by_group(run(build(policy), [request]))[request.group] for request in requests}
    assert together == cramped == backwards == alone


def test_a_run_repeats_bit_for_bit_and_seeds_epochs_and_completions_differ(build, policy):
    first, again = (run(build(policy), ragged_requests(policy)) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        for a, b in zip(one.completions, other.completions, strict=True):
            assert a.token_ids.tobytes() + a.log_probs.tobytes() == b.token_ids.tobytes() + b.log_probs.tobytes()
    by_group = completions_by_group(first)
    assert by_group != completions_by_group(run(build(policy, seed=1), ragged_requests(policy)))
    assert by_group != completions_by_group(run(build(policy), ragged_requests(policy, epoch=1)))
    assert len({tuple(ids) for ids in by_group[0]}) > 1


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=12), st.integers(4, 9), st.data())
def test_groups_are_admitted_whole_and_each_is_returned_once(sizes, slots, data):
    policy = _SHARED
    meter = Meter("generator:0", clock=ManualClock())
    loop = Embedded(slots=slots).build(policy, control=Truncation(), completion_tokens=5, seed=0, meter=meter)
    requests = [request(policy, group, "1" * length, num_completions=num) for group, (num, length) in enumerate(sizes)]
    cancelled = data.draw(st.sets(st.integers(0, len(sizes))))
    finished, step = [], 0
    loop.submit(requests)
    while loop.num_in_flight:
        finished += [group.id for group in loop.step()]
        step += 1
        if step == 2:
            cancelled -= set(finished)
            loop.cancel(cancelled)
        assert step < 100
    assert sorted(finished) == [group for group in range(len(sizes)) if group not in cancelled]


_SHARED = tiny_policy()


def test_cancelled_groups_leave_no_trace_in_the_others(build, policy):
    requests = ragged_requests(policy)
    undisturbed = completions_by_group(run(build(policy, slots=64), requests))
    loop = build(policy, slots=64)
    loop.submit(requests)
    finished = loop.step() + loop.step()
    loop.cancel({1, 3, 77})
    finished += run(loop)
    assert completions_by_group(finished) == {group: ids for group, ids in undisturbed.items() if group not in {1, 3}}
    assert_log_probs(policy, finished)


def test_an_evaluation_leaves_requests_in_flight_alone_and_draws_from_its_own_stream(build, policy):
    requests = ragged_requests(policy)
    undisturbed = completions_by_group(run(build(policy), requests))
    loop = build(policy)
    loop.submit(requests)
    finished = loop.step()
    calls = []
    evaluated = loop.evaluate(requests[::-1], between=lambda: calls.append(1))
    assert [group.id for group in evaluated] == [request.group for request in requests[::-1]]
    assert len(calls) >= 12
    assert_log_probs(policy, evaluated)
    assert completions_by_group(evaluated) != undisturbed
    assert completions_by_group(finished + run(loop)) == undisturbed
    # Prompt and epoch decide, not the version.
    loop.take_weights(9, policy.tensors(), between=lambda: None)
    assert completions_by_group(loop.evaluate(requests, between=lambda: None)) == completions_by_group(evaluated)


def test_the_probe_is_booked_with_its_seconds_flops_and_tokens_in_one_place(build, policy, meter):
    loop = build(policy)
    forward = CachedBody.forward

    def slow(self, *arguments, **named):
        meter.clock.advance(2.0)
        return forward(self, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedBody, "forward", slow)
        loop.score([((3, 4), (5, 6, 7)), ((3,), (5, 6))])
    (cost,) = meter.collect()
    assert (cost.activity, cost.detail, cost.seconds, cost.tokens) == (Activity.PUSH, "probe", 4.0, 5)
    # Contexts of 2 and 1 tokens, then all but the last of the continuations: 3 + 1, 3 + 4 and 2 pairs, and 5 logits.
    assert cost.flops == policy.flops.forward(num_tokens=2 + 1 + 2 + 1, num_pairs=3 + 1 + 3 + 4 + 2, num_logits=5)


def test_the_probe_is_scored_as_sampling_scores(build, policy):
    loop = build(policy, temperature=0.7)
    groups = run(loop, ragged_requests(policy))
    probe = [(group.prompt.token_ids, tuple(group.completions[i].token_ids.tolist())) for group in groups for i in (0, 1)]
    sampled = np.concatenate([group.completions[i].log_probs for group in groups for i in (0, 1)])
    scored = loop.score(probe)
    np.testing.assert_allclose(scored, sampled, atol=1e-5)
    assert scored.dtype == np.float32
    assert loop.score([]).shape == (0,)
    (first, *_) = probe
    np.testing.assert_allclose(loop.score([(first[0], first[1][:1])]), sampled[:1], atol=1e-5)


def test_a_long_completion_outgrows_the_cache_many_times(build, policy):
    policy.module.generation_config.eos_token_id = None
    policy.module.config.eos_token_id = None
    policy.tokenizer.eos_token = None
    (group,) = run(build(policy, completion_tokens=150), [request(policy, 0, "1+", num_completions=2)])
    assert [len(completion.token_ids) for completion in group.completions] == [150, 150]
    assert_log_probs(policy, [group])


def test_an_engine_refuses_what_it_cannot_do(build, policy):
    with pytest.raises(UsageError, match="2 slots cannot hold a group of 4"):
        build(policy, slots=2).submit([request(policy, 0, "1:")])
    longest = build(tiny_policy(max_tokens=16), completion_tokens=12)
    longest.submit([request(policy, 0, "1+2:")])
    with pytest.raises(UsageError, match="a prompt of 5 tokens and a completion of 12 exceed the 16 of the model"):
        longest.evaluate([request(policy, 1, "1+20:")], between=lambda: None)
    policy.config.sliding_window = 8
    with pytest.raises(UsageError, match="sliding_attention"):
        build(policy)


def test_weights_that_are_not_finite_stop_the_run_with_a_sentence(build, policy):
    loop = build(policy)
    loop.take_weights(4, {name: tensor * float("nan") for name, tensor in policy.tensors().items()}, between=lambda: None)
    with pytest.raises(ScalerlError, match="version 4 has logits that are not finite"):
        run(loop, [request(policy, 0, "1:")])


def test_a_body_in_bfloat16_agrees_with_its_full_forward_pass_to_its_precision(build):
    policy = tiny_policy(dtype="bfloat16", head="fp32")
    groups = run(build(policy), ragged_requests(policy))
    differences = [full_log_probs(policy, group, c) - c.log_probs for group in groups for c in group.completions]
    assert np.abs(np.concatenate(differences)).mean() < 0.05
