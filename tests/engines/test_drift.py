"""The drift probe against references that know which version computed what, and its sample against one made by hand."""

import copy
import math

import numpy as np
import pytest

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.engines.embedded import Drift, Embedded
from scalerl.objective.length_controls.interruption import Interruption
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.records.cost import Activity
from scalerl.records.push import DRIFT_PROBE
from scalerl.testing.engines import kept_log_probs, noisy, token_versions
from tests.engines.tiny import full_log_probs, ragged_requests, request

EVERYONE = Drift(rows=64, share=1.0)
PUSHES = (3, 5, 8)
"""Steps before which new weights arrive."""


@pytest.fixture
def versions(policy):
    policies = [copy.deepcopy(policy) for _ in range(len(PUSHES) + 1)]
    for version in range(1, len(policies)):
        policies[version].load_tensors(noisy(policy, seed=version))
    return policies


def run(loop, versions, requests):
    """All groups, and what each push measured, by the version that went out."""
    loop.submit(requests)
    groups, drifts, step = [], {}, 0
    while loop.num_in_flight:
        if step in PUSHES:
            out = loop.version
            groups += loop.take_weights(out + 1, versions[out + 1].tensors(), between=lambda: None)
            drifts[out] = loop.last_push.drift
        groups += loop.step()
        step += 1
    return groups, drifts


def compared(groups, out):
    """The completions that were in flight at the push before `out` went out and sampled under it, with the places of those tokens."""
    for group in groups:
        for completion in group.completions:
            at = np.flatnonzero((np.array(token_versions(completion)) == out) & completion.trainable)
            if completion.first_version < out and at.size:
                yield group, completion, at


def expected(versions, groups, out, *, kv):
    """(distance, positions, drift of the tokens) of each completion, by passes of the Hugging Face model alone."""
    for group, completion, at in compared(groups, out):
        anew, kept = full_log_probs(versions[out], group, completion)[at], kept_log_probs(versions, group, completion)[at]
        sampled, other = (kept, anew) if kv == "keep" else (anew, kept)
        np.testing.assert_allclose(completion.log_probs[at], sampled, atol=1e-5)
        yield out - completion.first_version, at, other - sampled


@pytest.mark.parametrize("kv", ["keep", "reprefill"])
def test_the_drift_is_that_of_two_explicit_caches(build, policy, versions, kv):
    loop = build(policy, slots=4, seed=6, kv=kv, drift=EVERYONE)  # one of them begins between two pushes
    groups, drifts = run(loop, versions, ragged_requests(policy, num_completions=1))
    assert drifts[0] is None, "nothing has met a push before the first one"
    for out in (1, 2):
        rows = list(expected(versions, groups, out, kv=kv))
        cells = {}
        for distance, positions, drift in rows:
            for position, value in zip(positions.tolist(), drift.tolist(), strict=True):
                cells.setdefault((distance, int(math.log2(position + 1))), []).append(value)
        assert {(one.distance, one.bucket): one.num_tokens for one in drifts[out].tokens} == {cell: len(v) for cell, v in cells.items()}
        for one in drifts[out].tokens:
            drift = np.array(cells[one.distance, one.bucket])
            weight = np.exp(drift)
            sums = [drift.sum(), (drift**2).sum(), (weight - 1 - drift).sum(), weight.sum(), (weight**2).sum()]
            measured = [one.drift, one.drift_square, one.k3, one.weight, one.weight_square]
            np.testing.assert_allclose(measured, sums, atol=2e-5 * len(drift))
        for one in drifts[out].traces:
            weight = np.array([np.exp(drift.sum()) for distance, _, drift in rows if distance == one.distance])
            assert one.num_traces == len(weight)
            np.testing.assert_allclose([one.weight, one.weight_square], [weight.sum(), (weight**2).sum()], rtol=1e-4)
    spread = math.sqrt(sum(one.drift_square for one in drifts[2].tokens) / sum(one.num_tokens for one in drifts[2].tokens))
    assert spread > 1e-2, "stale keys are visible in this test, or it would show nothing"
    assert {one.distance for one in drifts[2].tokens} == {1, 2}


@pytest.mark.parametrize("kv", ["keep", "reprefill"])
def test_weights_that_do_not_change_do_not_drift(build, policy, kv):
    same = [policy] * (len(PUSHES) + 1)
    _, drifts = run(build(copy.deepcopy(policy), slots=10, kv=kv, drift=EVERYONE), same, ragged_requests(policy))
    tokens = [one for drift in drifts.values() if drift is not None for one in drift.tokens]
    assert sum(one.num_tokens for one in tokens) > 20
    assert max(abs(one.drift) + math.sqrt(one.drift_square) for one in tokens) < 1e-5 * max(one.num_tokens for one in tokens)
    assert all(one.k3 < 1e-8 for one in tokens)


def probed(loop, policy, *, num_pushes=3, steps=2):
    """Pushes of the same weights, some steps apart; what each measured."""
    drifts = []
    for version in range(1, num_pushes + 1):
        for _ in range(steps):
            loop.step()
        loop.take_weights(version, policy.tensors(), between=lambda: None)
        drifts.append(loop.last_push.drift)
    return drifts


def endless(policy):
    """A policy whose completions end at their budget only, so that tests can count."""
    policy.tokenizer.eos_token = policy.module.generation_config.eos_token_id = policy.config.eos_token_id = None
    return policy


@pytest.mark.parametrize(("kv", "passed"), [("keep", [0, 60, 66]), ("reprefill", [54, 6, 6])])
def test_no_more_are_followed_than_rows_and_a_shadow_takes_in_new_tokens_alone(build, policy, meter, kv, passed):
    endless(policy)
    loop = build(policy, kv=kv, slots=12, drift=Drift(rows=3, share=1.0))
    loop.submit([request(policy, group, "12345678901234567", num_completions=4) for group in range(3)])
    tokens = []
    for version in (1, 2, 3):
        loop.step()
        loop.step()
        meter.collect()
        loop.take_weights(version, policy.tensors(), between=lambda: None)
        probes = [cost for cost in meter.collect() if (cost.activity, cost.detail) == (Activity.PUSH, DRIFT_PROBE)]
        tokens.append(sum(cost.tokens for cost in probes))
    # Prompts of 17 tokens: 18 are cached at the first push, 20 at the second, 22 at the third.
    assert tokens == passed
    drift = loop.last_push.drift
    assert [(one.distance, one.num_traces) for one in drift.traces] == [(2, 3)]
    assert sum(one.num_tokens for one in drift.tokens) == 3 * 2
    num_pairs = 3 * 22 * 23 // 2 if kv == "keep" else 3 * (21 + 22)
    assert probes[0].flops == policy.flops.forward(num_tokens=passed[-1], num_pairs=num_pairs, num_logits=3 * 2)
    assert (drift.recomputed_tokens, drift.recomputed_pairs) == ((66, 3 * 22 * 23 // 2) if kv == "keep" else (0, 0))


@pytest.mark.parametrize("kv", ["keep", "reprefill"])
def test_completions_that_end_before_the_next_push_are_in_the_sample(build, policy, kv):
    loop = build(endless(policy), kv=kv, completion_tokens=4, drift=EVERYONE)
    loop.submit([request(policy, 0, "12+34*5:")])
    drift = probed(loop, policy, num_pushes=2, steps=3)[1]
    assert loop.num_in_flight == 0
    assert [(one.distance, one.bucket, one.num_tokens) for one in drift.tokens] == [(1, 2, 4)]  # the fourth token of each of 4


def test_the_sample_is_drawn_by_what_a_completion_is_and_not_by_where_it_is_decoded(build, policy):
    endless(policy)

    def followed(order):
        loop = build(policy, slots=12, drift=Drift(rows=3, share=1.0))
        loop.submit([request(policy, group, "12+34*5:") for group in order])
        probed(loop, policy, num_pushes=1)
        return set(loop._drift._followed)

    assert followed([0, 1, 2]) == followed([2, 0, 1])
    assert len(followed([0, 1, 2])) == 3


@pytest.mark.parametrize("kv", ["keep", "reprefill"])
def test_sampling_takes_no_notice_of_the_probe(build, policy, versions, kv):
    with_probe, without = (
        run(build(copy.deepcopy(policy), slots=10, kv=kv, drift=drift), versions, ragged_requests(policy))
        for drift in (EVERYONE, Drift(rows=0))
    )
    assert not any(without[1].values())
    for one, other in zip(with_probe[0], without[0], strict=True):
        for a, b in zip(one.completions, other.completions, strict=True):
            assert a.token_ids.tolist() == b.token_ids.tolist()
            assert a.log_probs.tolist() == b.log_probs.tolist()


def test_cancelled_completions_leave_the_sample(build, policy):
    loop = build(endless(policy), kv="reprefill", drift=EVERYONE)
    loop.submit([request(policy, 0, "1:"), request(policy, 1, "2:")])
    probed(loop, policy, num_pushes=1)
    loop.cancel([0])
    loop.step()
    loop.take_weights(2, policy.tensors(), between=lambda: None)
    assert [one.num_traces for one in loop.last_push.drift.traces] == [4]


def test_inserted_tokens_are_not_compared(build, policy):
    control = Interruption(after_tokens=(4, 4), phrase="=1=", answer_tokens=3, ends_thinking="=")
    loop = build(endless(policy), control=control, drift=EVERYONE)
    loop.submit([request(policy, 0, "12+34*5:")])
    drift = probed(loop, policy, num_pushes=2, steps=3)[1]
    # Tokens 3, then three inserted ones after it, then two more: of the six of this version three were sampled.
    assert sum(one.num_tokens for one in drift.tokens) == 4 * 3


def test_a_push_says_what_it_met_and_reprefill_computes_just_that(build, policy, meter):
    loop = build(endless(policy), kv="reprefill", drift=Drift(rows=0))
    loop.submit([request(policy, 0, "123456789:", num_completions=1), request(policy, 1, "1:", num_completions=3)])
    for _ in range(3):
        loop.step()
    meter.collect()
    loop.take_weights(1, policy.tensors(), between=lambda: None)
    push = loop.last_push
    assert (push.num_rows, push.prompt_tokens, push.generated_tokens) == (4, 10 + 3 * 2, 4 * 2)
    (cost,) = (cost for cost in meter.collect() if cost.activity is Activity.REPREFILL)
    assert cost.tokens == push.reprefill_tokens
    assert cost.flops == policy.flops.forward(num_tokens=push.reprefill_tokens, num_pairs=push.reprefill_pairs, num_logits=0)


def test_drain_has_nothing_to_compare(build, policy, versions):
    _, drifts = run(build(policy, slots=10, kv="drain", drift=EVERYONE), versions, ragged_requests(policy))
    assert set(drifts.values()) == {None}


class Ticking(ManualClock):
    """A clock on which every look takes a second."""

    def now_s(self):
        self.advance(1.0)
        return super().now_s()


def test_the_probe_chooses_no_new_ones_while_it_has_had_its_share(policy):
    """Every measurement takes as long as a step here: with .02 only each fiftieth may follow another."""
    meter = Meter("generator:0", clock=Ticking())
    engine = Embedded(slots=16, drift=Drift(rows=4, share=0.02))
    loop = engine.build(endless(policy), control=Truncation(), completion_tokens=6, seed=0, meter=meter)
    num_measured = 0
    for push in range(1, 301):
        if not loop.num_in_flight:
            loop.submit([request(policy, push, "1:")])
        loop.step()
        loop.step()
        loop.take_weights(push, policy.tensors(), between=lambda: None)
        num_measured += loop.last_push.drift is not None
    assert meter.total_s(Activity.PUSH, DRIFT_PROBE) < 0.03 * meter.total_s(Activity.GENERATE)
    assert num_measured > 3
