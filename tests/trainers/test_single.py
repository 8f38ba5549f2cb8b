"""The trainer against the equation, written out completion by completion on Hugging Face's own logits."""

import math
import resource
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from scalerl.accounting.flops import causal_pairs
from scalerl.core.errors import DataError, ScalerlError, UsageError
from scalerl.models._policy import Policy
from scalerl.objective import Objective
from scalerl.objective.advantages.centred import Centred
from scalerl.objective.aggregations.sample import Sample
from scalerl.objective.aggregations.token import Token
from scalerl.objective.losses import Loss
from scalerl.objective.losses.cispo import Cispo
from scalerl.records.cost import Activity
from scalerl.records.rollout import Batch
from scalerl.trainers._rows import Row, cut
from scalerl.trainers.fsdp2 import Fsdp2
from tests.trainers.tiny import DIGITS, MODEL, completion, even_batch, group, ragged_batch, tiny_policy

OBJECTIVE = Objective(loss=Cispo(), advantage=Centred(), aggregation=Token())


def nothing():
    pass


def weights_of(learner):
    return {name: tensor.clone() for name, tensor in learner.weights().items()}


def assert_close(found, expected, *, rel):
    """Equal up to `rel` of the largest gradient of all."""
    scale = max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        assert (found[name] - gradient).abs().max() <= rel * scale, name


def distributions(policy, group_, completion_, temperature):
    """(T, V) log pi of every completion token, by a full forward pass of the unpadded sequence."""
    prompt = list(group_.prompt.token_ids)
    ids = torch.tensor([[*prompt, *completion_.token_ids.tolist()]])
    return torch.log_softmax(policy.module(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature, dim=-1)


def scalerl_objective(policy, batch, *, cap, temperature):
    """J = mean_x 1/(sum_g |y_g|) sum_i sum_t sg(min(rho_it, cap)) (A_i / A_std) log pi(y_it), arXiv 2510.13786, section 3.2."""
    centred = {}
    for g in batch.groups:
        values = {c.index: c.score.value for c in g.completions if c.score.value is not None}
        mean = sum(values.values()) / len(values)
        centred |= {(g.id, index): value - mean for index, value in values.items()}
    std = np.std(list(centred.values()))
    objective = 0.0
    for g in batch.groups:
        total, num_tokens = 0.0, 0
        for c in g.completions:
            for t, log_pi in enumerate(distributions(policy, g, c, temperature)):
                if c.trainable[t] and c.score.value is not None:
                    chosen = log_pi[int(c.token_ids[t])]
                    weight = min(math.exp(chosen.item() - float(c.log_probs[t])), cap)
                    total = total + weight * centred[g.id, c.index] / std * chosen
                    num_tokens += 1
        objective = objective + total / num_tokens / len(batch.groups)
    return objective


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_gradient_is_that_of_the_equation(policy, build, gradients, temperature):
    batch = ragged_batch()
    loss = -scalerl_objective(policy, batch, cap=1.5, temperature=temperature)
    named = dict(policy.module.named_parameters())
    expected = dict(zip(named, torch.autograd.grad(loss, named.values()), strict=True))

    metrics = build(policy, objective={"loss": Cispo(cap=1.5)}, temperature=temperature).train(batch, between=nothing)

    assert_close(gradients[0], expected, rel=1e-5)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    norm = math.sqrt(sum(gradient.square().sum().item() for gradient in expected.values()))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)


def test_m1_trainer_and_sampler_divide_by_one_temperature(policy, build):
    """Behaviour of the same weights at T = .5: every ratio is 1 at .5, and a systematic bias at 1."""
    groups = []
    with torch.no_grad():
        for g in even_batch().groups:
            told = []
            for c in g.completions:
                log_pi = distributions(policy, g, c, 0.5).numpy()[np.arange(c.token_ids.size), c.token_ids]
                told.append(replace(c, log_probs=log_pi))
            groups.append(replace(g, completions=tuple(told)))
    batch = Batch(0, tuple(groups))
    same = build(policy, temperature=0.5, learning_rate=1e-12).train(batch, between=nothing)
    assert (same["ratio_p01"], same["ratio_max"]) == pytest.approx((1.0, 1.0), abs=1e-5)
    assert same["kl_mismatch"] == pytest.approx(0.0, abs=1e-6)
    other = build(policy, temperature=1.0, learning_rate=1e-12).train(batch, between=nothing)
    assert other["ratio_max"] - other["ratio_p01"] > 0.01


def test_kl_to_the_sampler_is_told_apart_by_the_version_that_sampled(policy, build):
    batch = even_batch(groups=2)
    first, second = batch.groups
    stale = replace(second, completions=tuple(replace(c, version_runs=((0, 2), (2, 3))) for c in second.completions))
    fresh = replace(first, completions=tuple(replace(c, version_runs=((2, 5),)) for c in first.completions))
    learner = build(policy, learning_rate=1e-12)
    for _ in range(2):
        learner.train(batch, between=nothing)
    drift = {}
    with torch.no_grad():
        for g in batch.groups:
            parts = []
            for c in g.completions:
                parts.append(c.log_probs - distributions(policy, g, c, 1.0).numpy()[np.arange(5), c.token_ids])
            drift[g.id] = np.array(parts)
    metrics = learner.train(Batch(0, (fresh, stale)), between=nothing)
    of_version = np.concatenate([drift[first.id].ravel(), drift[second.id][:, 2:].ravel()])
    assert metrics["kl_mismatch"] == pytest.approx(of_version.mean(), abs=1e-5)
    assert metrics["kl_stale"] == pytest.approx(drift[second.id][:, :2].mean(), abs=1e-5)
    assert metrics["stale_share"] == pytest.approx(0.2)
    mean = (1.0 - 0.2) * metrics["kl_mismatch"] + 0.2 * metrics["kl_stale"]
    assert metrics["kl_behaviour"] == pytest.approx(mean, abs=1e-6)


def test_what_is_measured_is_what_the_tokens_show(policy, build):
    batch = ragged_batch()
    log_probs, behaviour, entropy = [], [], []
    with torch.no_grad():
        for g in batch.groups:
            for c in g.completions:
                if c.score.value is not None:
                    log_pi = distributions(policy, g, c, 0.7).double().numpy()[c.trainable]
                    log_probs.extend(log_pi[np.arange(len(log_pi)), c.token_ids[c.trainable]])
                    behaviour.extend(c.log_probs[c.trainable])
                    entropy.extend(-(np.exp(log_pi) * log_pi).sum(-1))
    ratios = np.exp(np.array(log_probs) - behaviour)

    metrics = build(policy, objective={"loss": Cispo(cap=1.5)}, temperature=0.7).train(batch, between=nothing)

    assert metrics["num_tokens"] == len(ratios) == 5 + 7 + 1 + 3 + 7
    assert metrics["num_completions"] == 5, "one was not graded, one has inserted tokens only"
    assert metrics["num_micro_batches"] == 1
    assert metrics["entropy"] == pytest.approx(np.mean(entropy), rel=1e-5)
    assert metrics["ess"] == pytest.approx(ratios.sum() ** 2 / (len(ratios) * np.square(ratios).sum()), rel=1e-5)
    assert metrics["ratio_max"] == pytest.approx(ratios.max(), rel=1e-5)
    assert metrics["ratio_p99"] == pytest.approx(ratios.max(), rel=1e-5), "the 99th percentile of 23 tokens is the largest"
    assert metrics["kl_behaviour"] == pytest.approx(-np.mean(np.log(ratios)), rel=1e-5)
    assert metrics["clipped_share"] == pytest.approx(np.mean(ratios > 1.5))
    assert 0.0 < metrics["clipped_share"] < 1.0
    # Centred scores: group one 1, 0, 1 (the failed one left out), group two 0, 1, .25; all but the inserted-only one are trained.
    centred = np.array([1 / 3, -2 / 3, 1 / 3, -5 / 12, 7 / 12, -1 / 6])
    assert metrics["advantage_std"] == pytest.approx(np.std(np.delete(centred, 4) / np.std(centred)), rel=1e-6)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(max_tokens=st.integers(1, 90), aggregation=st.sampled_from([Sample(), Token()]))
def test_l1_no_cut_changes_the_gradient(build, gradients, max_tokens, aggregation):
    for micro_batch_tokens in (10_000, max_tokens):
        learner = build(tiny_policy(), trainer={"micro_batch_tokens": micro_batch_tokens}, objective={"aggregation": aggregation})
        learner.train(ragged_batch(), between=nothing)
    uncut, in_pieces = gradients[-2:]
    assert_close(in_pieces, uncut, rel=1e-5)


@given(lengths=st.lists(st.integers(2, 40), min_size=1, max_size=30), max_tokens=st.integers(1, 80))
def test_a_cut_keeps_every_row_whole_and_within_the_budget(lengths, max_tokens):
    rows = [Row.of([3], range(length)) for length in lengths]
    chunks = cut(rows, max_tokens=max_tokens, length=lambda row: row.num_inputs)
    assert sorted(map(id, rows)) == sorted(id(row) for chunk in chunks for row in chunk)
    assert all(len(chunk) == 1 or sum(row.num_inputs for row in chunk) <= max_tokens for chunk in chunks)


def test_between_is_called_after_each_micro_batch(policy, build):
    calls = []
    metrics = build(policy, trainer={"micro_batch_tokens": 1}).train(even_batch(groups=2, size=4), between=lambda: calls.append(1))
    assert len(calls) == metrics["num_micro_batches"] == 8


def test_inserted_tokens_carry_no_gradient_whatever_stands_beside_them(build, gradients):
    rng = np.random.default_rng(3)
    with_inserted = completion(rng, 0, 6, value=1.0, inserted=(2, 3, 4, 5))
    other = completion(rng, 1, 4, value=0.0)
    cut_short = replace(
        with_inserted,
        token_ids=with_inserted.token_ids[:2],
        log_probs=with_inserted.log_probs[:2],
        trainable=with_inserted.trainable[:2],
        version_runs=((0, 2),),
    )
    for first in (with_inserted, cut_short):
        build(tiny_policy()).train(Batch(0, (group(np.random.default_rng(4), 0, 3, [first, other]),)), between=nothing)
    assert_close(gradients[0], gradients[1], rel=1e-6)


def test_the_rate_rises_linearly_and_stays(policy, build):
    learner = build(policy, learning_rate=4e-3, warmup_steps=4)
    rates = [learner.train(even_batch(seed), between=nothing)["learning_rate"] for seed in range(6)]
    assert rates == pytest.approx([1e-3, 2e-3, 3e-3, 4e-3, 4e-3, 4e-3])
    assert learner.version == 6


def test_training_raises_what_was_rewarded(policy, build):
    batch = even_batch()
    learner = build(policy, objective={"loss": Cispo(cap=5.0)}, learning_rate=3e-3)
    probe = [(g.prompt.token_ids, tuple(c.token_ids.tolist())) for g in batch.groups for c in g.completions]
    good = np.repeat([c.score.passed for g in batch.groups for c in g.completions], 5)
    before = learner.score(probe)
    for _ in range(10):
        learner.train(batch, between=nothing)
    change = learner.score(probe) - before
    assert change[good].mean() > 0.1
    assert change[~good].mean() < -0.1


class Poisoned(Loss):
    """A loss that is not finite, as a broken model would make it."""

    def objective(self, log_probs, behaviour, advantages, mask):
        return (log_probs * math.inf).where(mask, 0.0)


class Steep(Loss):
    """A finite loss whose gradient is not."""

    def objective(self, log_probs, behaviour, advantages, mask):
        return (log_probs * 0.0).abs().sqrt().where(mask, 0.0)


@pytest.mark.parametrize("loss", [Poisoned(), Steep()])
def test_what_is_not_finite_never_reaches_the_weights(policy, build, loss):
    learner = build(policy, objective={"loss": loss})
    before = weights_of(learner)
    metrics = learner.train(even_batch(), between=nothing)
    assert metrics["skipped"] == 1.0
    assert metrics["grad_norm"] is None
    assert learner.version == 0
    assert all(tensor.equal(before[name]) for name, tensor in learner.weights().items())


def test_l2_a_batch_without_trainable_tokens_is_no_update(policy, build, meter):
    rng = np.random.default_rng(0)
    batch = Batch(0, (group(rng, 0, 3, [completion(rng, 0, 4, value=None), completion(rng, 1, 2, value=1.0, inserted=(0, 1))]),))
    learner = build(policy)
    before = weights_of(learner)
    metrics = learner.train(batch, between=nothing)
    assert (metrics["loss"], metrics["grad_norm"], metrics["num_tokens"], metrics["skipped"]) == (0.0, 0.0, 0.0, 0.0)
    assert metrics["entropy"] is None
    assert learner.version == 0
    assert all(tensor.equal(before[name]) for name, tensor in learner.weights().items())
    assert [(cost.activity, cost.flops) for cost in meter.collect()] == [(Activity.TRAIN, 0.0)]


def test_an_update_broken_off_leaves_no_gradient_behind(build, gradients):
    class Stop(Exception):
        pass

    def stop():
        raise Stop

    learner = build(tiny_policy(), trainer={"micro_batch_tokens": 1})
    with pytest.raises(Stop):
        learner.train(ragged_batch(1), between=stop)
    learner.train(ragged_batch(), between=nothing)
    build(tiny_policy(), trainer={"micro_batch_tokens": 1}).train(ragged_batch(), between=nothing)
    assert all(gradients[0][name].equal(gradient) for name, gradient in gradients[1].items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_restored_trainer_goes_on_bit_for_bit(build, tmp_path, dtype):
    learner = build(tiny_policy(dtype=dtype), warmup_steps=5)
    for seed in range(3):
        learner.train(even_batch(seed), between=nothing)
    learner.save(tmp_path)
    expected = [learner.train(even_batch(seed), between=nothing) for seed in range(3, 6)]

    resumed = build(Policy.load(tmp_path, head="fp32", dtype=dtype), warmup_steps=5)
    resumed.restore(tmp_path)
    assert resumed.version == 3
    assert [resumed.train(even_batch(seed), between=nothing) for seed in range(3, 6)] == expected
    assert all(tensor.equal(learner.weights()[name]) for name, tensor in resumed.weights().items())


def test_saving_is_booked_as_checkpoint(policy, build, meter, tmp_path):
    build(policy).save(tmp_path)
    assert [cost.activity for cost in meter.collect()] == [Activity.CHECKPOINT]


def test_a_folder_without_trainer_state_is_refused(policy, build, tmp_path):
    policy.save(tmp_path)
    with pytest.raises(DataError, match="no trainer state"):
        build(policy).restore(tmp_path)


def test_the_state_of_another_model_is_refused(policy, build, tmp_path):
    learner = build(MODEL.model_copy(update={"num_layers": 3}).build(alphabet=DIGITS, seed=0))
    learner.train(even_batch(), between=nothing)
    learner.save(tmp_path)
    with pytest.raises(DataError, match=r"does not fit the model: model\.layers\.2"):
        build(policy).restore(tmp_path)


@contextmanager
def disk_full(after_bytes):
    """No file can grow beyond `after_bytes`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_clear_sentence(policy, build, tmp_path):
    learner = build(policy)
    with disk_full(after_bytes=8192), pytest.raises(ScalerlError, match=r"the model cannot be written .*; make room"):
        learner.save(tmp_path)


@pytest.mark.parametrize("recomputes", [False, True])
def test_flops_are_those_that_torch_counts(build, meter, recomputes):
    """Prompts once and what follows them, or whole rows, where activations are computed again."""
    policy = tiny_policy()
    policy.module.set_attn_implementation("eager")  # Counted as matmuls; the fused kernel's recomputation is not useful work.
    batch = ragged_batch()
    learner = build(policy, trainer={"activation_checkpointing": recomputes})
    with FlopCounterMode(display=False) as counter:
        learner.train(batch, between=nothing)
    (cost,) = meter.collect()
    prompts, completions = np.array([6, 6, 6, 2, 2]), np.array([5, 9, 1, 3, 7])
    lengths = prompts + completions - 1
    whole = lengths if recomputes else np.array([6, 2])
    # Torch counts the whole square of scores; a causal kernel leaves out what lies above the diagonal.
    above_diagonal = whole.size * (whole.max() ** 2 - causal_pairs(whole.max())) * policy.flops.attention_per_pair
    spared = recomputes * 2.0 * whole.size * whole.max() * MODEL.num_layers * MODEL.hidden_size * MODEL.intermediate_size
    counted = counter.get_total_flops() + spared
    assert cost.flops + cost.overhead_flops + (3 + recomputes) * above_diagonal == pytest.approx(counted, rel=0.01)
    rest = lengths - prompts
    num_tokens, num_pairs = (
        (lengths.sum(), causal_pairs(lengths).sum())
        if recomputes
        else (8 + rest.sum(), causal_pairs(whole).sum() + causal_pairs(lengths, start=prompts).sum())
    )
    useful = policy.flops.forward(num_tokens=num_tokens, num_pairs=num_pairs, num_logits=23)
    assert cost.flops == pytest.approx(3 * useful)
    assert (cost.activity, cost.tokens) == (Activity.TRAIN, 23)


def test_the_probe_is_scored_in_order_as_the_model_says(policy, build, meter):
    probe = [((2, 3, 4), (5, 6)), ((7,), (8, 9, 10, 11)), ((3, 3), (2,))]
    expected = []
    with torch.no_grad():
        for context, continuation in probe:
            logits = policy.module(input_ids=torch.tensor([[*context, *continuation]])).logits[0, len(context) - 1 : -1]
            log_pi = torch.log_softmax(logits / 0.5, dim=-1)
            expected.extend(log_pi[range(len(continuation)), list(continuation)].tolist())
    learner = build(policy, temperature=0.5)
    assert learner.score(probe) == pytest.approx(expected, abs=1e-5)
    assert [(cost.activity, cost.detail, cost.tokens) for cost in meter.collect()] == [(Activity.PUSH, "probe", 7)]
    assert learner.score([]).size == 0


def test_fsdp2_says_that_it_does_not_run_yet(policy, meter):
    trainer = Fsdp2(optimizer={"learning_rate": 1e-3}, micro_batch_tokens=10)
    with pytest.raises(UsageError, match=r"'fsdp2' does not run yet; choose 'single'"):
        trainer.build(policy, objective=OBJECTIVE, temperature=1.0, meter=meter)
