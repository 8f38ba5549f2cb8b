"""An evaluation decodes beside the training requests with the weights that it began with, whatever is pushed meanwhile."""

import pytest

from scalerl.records.cost import Activity
from scalerl.testing.engines import noisy
from tests.engines.tiny import ragged_requests, run


def completions(groups):
    return {group.id: [one.token_ids.tolist() for one in group.completions] for group in groups}


def versions(groups):
    return {run for group in groups for completion in group.completions for run, _ in completion.version_runs}


def beside(loop, held_out, pushes):
    """Evaluate while training requests decode and `pushes` arrive, one after each step; (evaluated, trained) groups."""
    evaluated, trained, pushes = [], [], list(pushes)
    loop.begin_evaluation(held_out)
    while len(evaluated) < len(held_out) or loop.num_in_flight:
        if len(evaluated) < len(held_out):
            evaluated += loop.step_evaluation()
        trained += loop.step()
        if pushes:
            trained += loop.take_weights(loop.version + 1, pushes.pop(0), between=lambda: None)
    return evaluated, trained


@pytest.mark.parametrize("kv", ["keep", "reprefill", "drain"])
def test_pushes_change_the_training_requests_alone(build, policy, kv):
    held_out, requests = ragged_requests(policy, epoch=7), ragged_requests(policy)
    pushes = [noisy(policy, seed=seed, size=0.5) for seed in (1, 2, 3)]
    expected = completions(build(policy.copied()).evaluate(held_out, between=lambda: None))

    alone = build(policy.copied(), kv=kv)
    alone.submit(requests)
    undisturbed = []
    for weights in (*pushes, *[None] * 40):
        undisturbed += alone.step()
        undisturbed += [] if weights is None else alone.take_weights(alone.version + 1, weights, between=lambda: None)

    loop = build(policy.copied(), kv=kv)
    loop.submit(requests)
    evaluated, trained = beside(loop, held_out, pushes)
    assert completions(evaluated) == expected
    assert versions(evaluated) == {0}
    assert completions(trained) == completions(undisturbed)
    assert loop.version == 3
    # The next one is of the version in use then.
    assert versions(loop.evaluate(held_out, between=lambda: None)) == {3}
    assert completions(loop.evaluate(held_out, between=lambda: None)) != expected


def test_weights_are_copied_only_if_others_come_before_the_evaluation_has_ended(build, policy, monkeypatch):
    copies = []
    copied = type(policy).copied
    monkeypatch.setattr(type(policy), "copied", lambda policy: copies.append(1) or copied(policy))
    loop = build(policy)
    loop.evaluate(ragged_requests(policy), between=lambda: None)
    loop.take_weights(1, noisy(policy), between=lambda: None)
    assert not copies
    loop.begin_evaluation(ragged_requests(policy))
    for version in (2, 3):
        loop.take_weights(version, noisy(policy, seed=version), between=lambda: None)
    assert len(copies) == 1


def test_an_evaluation_is_booked_apart_from_generation(build, policy, meter):
    loop = build(policy)
    run(loop, ragged_requests(policy))
    generated = [cost for cost in meter.collect() if cost.activity is Activity.GENERATE]
    loop.submit(ragged_requests(policy))
    evaluated, trained = beside(loop, ragged_requests(policy), [])
    costs = {cost.activity: cost for cost in meter.collect()}
    num_tokens = {Activity.EVALUATE: evaluated, Activity.GENERATE: trained}
    for activity, groups in num_tokens.items():
        assert costs[activity].tokens == sum(one.token_ids.size for group in groups for one in group.completions)
    assert costs[Activity.GENERATE].flops == sum(cost.flops for cost in generated)
