"""However a batch is cut, ordered, padded or spread over processes, its gradient is one: 1e-6 in doubles, 1e-5 in floats."""

import os
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import distributed, multiprocessing

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.objective import Objective
from scalerl.objective.advantages import Advantage
from scalerl.objective.advantages.centred import Centred
from scalerl.objective.advantages.critic import Critic
from scalerl.objective.aggregations import Aggregation
from scalerl.objective.losses import Loss
from scalerl.objective.terms.entropy import Entropy
from scalerl.objective.terms.kl import Kl
from scalerl.records.rollout import Batch, Outcome, Score
from scalerl.trainers._optimizer import MasterAdamW
from scalerl.trainers.single import Single
from tests.trainers.tiny import ragged_batch, tiny_policy

SETTINGS = {"optimizer": {"learning_rate": 1e-3, "warmup_steps": 0}, "micro_batch_tokens": 10_000}
OBJECTIVE = Objective(loss="cispo", advantage="centred", aggregation="prompt")
SEQUENCE_LOSSES = [
    {"type": "truncated", "level": "sequence"},
    {"type": "masked", "level": "sequence", "low": 0.1},
    {"type": "masked", "level": "geometric"},
]
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}
EVERYTHING = Objective(
    loss="gspo", advantage=Critic(), aggregation="token", terms=(Kl(coefficient=0.1, estimator="k2"), Entropy(coefficient=0.01))
)


def nothing():
    pass


def gradients(batch, *, objective=OBJECTIVE, dtype=torch.float64, **trainer):
    """Those of one step, by name; the critic's before the policy's. And what was measured."""
    policy = tiny_policy()
    policy.module.to(dtype)
    learner = Single(**SETTINGS | trainer).build(
        policy, objective=objective, temperature=1.0, meter=Meter("trainer:0", clock=ManualClock())
    )
    seen = []
    update = MasterAdamW.update

    def watched(self, learning_rate, *, ranks):
        norm = update(self, learning_rate, ranks=ranks)
        seen.append({name: moments["exp_avg"] for name, moments in _state(self).items()})
        return norm

    MasterAdamW.update = watched
    try:
        metrics = learner.train(batch, between=nothing)
    finally:
        MasterAdamW.update = update
    # After one step the first moment is a twentieth of the clipped gradient.
    return [{name: 20.0 * one for name, one in part.items()} for part in seen], metrics


def _state(optimizer):
    return {name: optimizer._adamw.state[master] for name, master in optimizer._masters.items()}


def assert_same(found, expected, *, rel):
    for one, other in zip(found, expected, strict=True):
        scale = max(gradient.abs().max() for gradient in other.values())
        for name, gradient in other.items():
            assert (one[name] - gradient).abs().max() <= rel * scale, name


def shuffled(batch, seed):
    """The same groups in another order, and so their completions."""
    rng = np.random.default_rng(seed)
    groups = []
    for index in rng.permutation(len(batch.groups)):
        group = batch.groups[index]
        order = rng.permutation(len(group.completions))
        groups.append(type(group)(group.id, group.prompt, group.epoch, tuple(group.completions[one] for one in order)))
    return Batch(batch.step, tuple(groups))


@pytest.mark.parametrize("dtype", TOLERANCE)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    loss=st.sampled_from([*Loss.family.names(), *SEQUENCE_LOSSES]),
    advantage=st.sampled_from(Advantage.family.names()),
    aggregation=st.sampled_from(["token", "sample", "prompt", {"type": "constant", "tokens": 9}]),
    max_tokens=st.integers(1, 60),
    seed=st.integers(0, 99),
    recomputes=st.booleans(),
)
def test_l1_neither_cut_nor_order_nor_recomputation_changes_a_gradient(dtype, loss, advantage, aggregation, max_tokens, seed, recomputes):
    objective = Objective(loss=loss, advantage=advantage, aggregation=aggregation)
    batch = ragged_batch(seed)
    whole, _ = gradients(batch, objective=objective, dtype=dtype)
    other, _ = gradients(
        shuffled(batch, seed), objective=objective, dtype=dtype, micro_batch_tokens=max_tokens, activation_checkpointing=recomputes
    )
    assert_same(other, whole, rel=TOLERANCE[dtype])


def test_a_critic_and_terms_do_not_depend_on_the_cut_either():
    whole, _ = gradients(ragged_batch(), objective=EVERYTHING)
    cut, _ = gradients(shuffled(ragged_batch(), 3), objective=EVERYTHING, micro_batch_tokens=7, activation_checkpointing=True)
    assert_same(cut, whole, rel=1e-6)


def test_a_completion_without_a_score_changes_nothing():
    """It leaves baseline, loss and denominators, whatever its tokens are: as if it had never been sampled."""
    batch = ragged_batch()
    first, second = batch.groups
    without = type(first)(first.id, first.prompt, first.epoch, tuple(c for c in first.completions if c.score.value is not None))
    for objective in (OBJECTIVE, EVERYTHING):
        expected, metrics = gradients(Batch(0, (without, second)), objective=objective)
        found, with_failed = gradients(batch, objective=objective)
        assert_same(found, expected, rel=1e-9)
        assert with_failed["loss"] == pytest.approx(metrics["loss"], rel=1e-9)


def one_row():
    """A batch that leaves the second of two ranks without a row."""
    first, _ = ragged_batch().groups
    failed = [replace(c, score=Score(None, None, Outcome.FAILED)) for c in first.completions[1:]]
    return Batch(0, (replace(first, completions=(first.completions[0], *failed)),))


def _as_rank(rank, objective, dtype, path):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{path}/group", rank=rank, world_size=2)
    for name, batch in (("ragged", ragged_batch()), ("one", one_row())):
        torch.save(gradients(batch, objective=objective, dtype=dtype), path / f"{name}{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()
    # A thread of gloo that still lets go of a tensor while the interpreter is taken down aborts the process: it is not taken down.
    os._exit(0)


@pytest.mark.parametrize(("objective", "dtype"), [(OBJECTIVE, torch.float64), (EVERYTHING, torch.float64), (OBJECTIVE, torch.float32)])
def test_l1_two_ranks_have_the_gradient_and_the_metrics_of_one(tmp_path, objective, dtype):
    multiprocessing.spawn(_as_rank, args=(objective, dtype, tmp_path), nprocs=2)
    for (name, batch), rank in product((("ragged", ragged_batch()), ("one", one_row())), range(2)):
        alone, metrics = gradients(batch, objective=objective, dtype=dtype)
        found, measured = torch.load(tmp_path / f"{name}{rank}.pt", weights_only=True)
        assert_same(found, alone, rel=TOLERANCE[dtype])
        assert measured.keys() == metrics.keys()
        same = {name for name, value in metrics.items() if value is not None} - {"num_micro_batches"}
        assert {name: measured[name] for name in same} == pytest.approx({name: metrics[name] for name in same}, rel=1e-4)


@pytest.mark.parametrize("name", Loss.family.names())
@pytest.mark.parametrize("aggregation", Aggregation.family.names())
def test_every_pair_of_loss_and_aggregation_trains(name, aggregation):
    of_aggregation = {"type": aggregation} | ({"tokens": 9} if aggregation == "constant" else {})
    (found,), metrics = gradients(ragged_batch(), objective=Objective(loss=name, advantage=Centred(), aggregation=of_aggregation))
    assert metrics["skipped"] == 0.0
    assert any(gradient.abs().max() > 0.0 for gradient in found.values())


@pytest.mark.parametrize("name", Advantage.family.names())
def test_every_advantage_trains(name):
    *_, found = gradients(ragged_batch(), objective=Objective(loss="cispo", advantage=name, aggregation="token"))[0]
    assert any(gradient.abs().max() > 0.0 for gradient in found.values())
