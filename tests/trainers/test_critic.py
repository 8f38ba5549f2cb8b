"""The critic against its equations, written out completion by completion, and what it costs."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalerl.accounting.flops import causal_pairs
from scalerl.core.errors import DataError, ScalerlError
from scalerl.models import _memory
from scalerl.models._policy import Policy
from scalerl.objective.advantages.critic import Critic
from scalerl.objective.aggregations.token import Token
from scalerl.objective.losses import Loss
from scalerl.objective.losses.reinforce import Reinforce
from scalerl.objective.terms.kl import Kl
from scalerl.records.cost import Activity
from scalerl.records.rollout import Batch
from scalerl.trainers._critic import Valued
from scalerl.trainers._rows import Row
from tests.trainers.tiny import MODEL, completion, even_batch, group, ragged_batch, tiny_policy


class Poisoned(Loss):
    """A loss that is not finite, as a broken model would make it."""

    def objective(self, log_probs, behaviour, advantages, mask):
        return (log_probs * np.inf).where(mask, 0.0)


def nothing():
    pass


def with_critic(build, policy, *, trainer=None, **settings):
    objective = {"advantage": Critic(**settings), "loss": Reinforce(), "aggregation": Token()}
    return build(policy, objective=objective, trainer=trainer, weight_decay=0.0, clip_norm=1e9)


def states(body, group_, completion_):
    """(T, H) the state before each token of a completion, by a full pass of the unpadded sequence."""
    prompt = list(group_.prompt.token_ids)
    ids = torch.tensor([[*prompt, *completion_.token_ids.tolist()]])
    return body(input_ids=ids).last_hidden_state[0, len(prompt) - 1 : -1]


def graded(batch):
    return [(g, c) for g in batch.groups for c in g.completions if c.score.value is not None and c.trainable.any()]


def by_hand(values, reward, discount, decay):
    """Generalized advantages as a double sum."""
    n = len(values)
    following = np.append(values[1:], 0.0)
    deltas = [(reward if t == n - 1 else 0.0) + discount * following[t] - values[t] for t in range(n)]
    return np.array([sum((discount * decay) ** (s - t) * deltas[s] for s in range(t, n)) for t in range(n)])


def trained_critic(learner, batch, steps=3):
    """Values that are not 0: the head has learnt."""
    for _ in range(steps):
        learner.train(batch, between=nothing)
    return learner._critic._module


def test_the_critics_gradient_and_the_policys_are_those_of_the_equations(build, gradients):
    batch, policy = ragged_batch(), tiny_policy()
    learner = with_critic(build, policy, discount=0.9, decay=0.8, scale="batch")
    module = copy.deepcopy(trained_critic(learner, batch))
    frozen = copy.deepcopy(policy.module)
    gradients.clear()
    learner.train(batch, between=nothing)
    of_policy, of_critic = gradients

    errors, advantages, log_probs = [], [], []
    for g, c in graded(batch):
        own = torch.from_numpy(c.trainable)
        values = module["head"](states(module["body"], g, c)).squeeze(-1)[own]
        known = values.detach().double().numpy()
        advantage = by_hand(known, c.score.value, 0.9, 0.8)
        errors.append(0.5 * (values - torch.tensor(advantage + known, dtype=torch.float32)).square())
        advantages.append(advantage)
        prompt = list(g.prompt.token_ids)
        logits = frozen(input_ids=torch.tensor([[*prompt, *c.token_ids.tolist()]])).logits[0, len(prompt) - 1 : -1]
        log_probs.append(torch.log_softmax(logits, -1)[range(len(c.token_ids)), c.token_ids.tolist()][own])
    loss = torch.cat(errors).mean()
    named = dict(module.named_parameters())
    for (name, _), expected in zip(named.items(), torch.autograd.grad(loss, named.values()), strict=True):
        assert torch.allclose(of_critic[name], expected, rtol=1e-4, atol=1e-6), name
    every = np.concatenate(advantages)
    objective = (torch.tensor(every / every.std(), dtype=torch.float32) * torch.cat(log_probs)).mean()
    named = dict(frozen.named_parameters())
    for (name, _), expected in zip(named.items(), torch.autograd.grad(-objective, named.values()), strict=True):
        assert torch.allclose(of_policy[name], expected, rtol=1e-4, atol=1e-6), name


def test_no_cut_changes_either_gradient(build, gradients):
    for max_tokens in (10_000, 12):
        learner = with_critic(build, tiny_policy(), trainer={"micro_batch_tokens": max_tokens})
        for _ in range(2):
            learner.train(ragged_batch(), between=nothing)
    whole, cut = gradients[:4], gradients[4:]
    for one, other in zip(whole, cut, strict=True):
        for name, gradient in one.items():
            assert torch.allclose(gradient, other[name], rtol=1e-3, atol=1e-6), name


@pytest.mark.parametrize(
    ("value_clip", "loss", "gradient"),
    [(0.2, 0.5 * (0.81 + 0.64 + 2.25 + 0.81), [-0.9, 0.0, -1.5, 0.9]), (None, 0.5 * (0.81 + 0.25 + 2.25 + 0.81), [-0.9, -0.5, -1.5, 0.9])],
)
def test_a_value_that_has_moved_too_far_towards_its_return_has_no_gradient(build, value_clip, loss, gradient):
    """Values before were 0 and returns are 1: the clipped error counts where it is the larger one."""
    critic = with_critic(build, tiny_policy(), value_clip=value_clip)._critic
    old = Valued(Row.of([3], [4, 5, 6, 7]), np.zeros(4), np.ones(4), np.ones(4))
    values = torch.tensor([0.1, 0.5, -0.5, 1.9], dtype=torch.float64, requires_grad=True)
    found = critic._loss(values, [old])
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert values.grad.tolist() == pytest.approx(gradient)


def test_later_passes_go_on_from_the_values_before_the_batch(build, gradients):
    learner = with_critic(build, tiny_policy(), passes=3, learning_rate_factor=1.0)
    learner.train(even_batch(), between=nothing)
    _, *passes = gradients
    assert len(passes) == 3
    assert all(not one["head.weight"].equal(other["head.weight"]) for one, other in pairwise(passes))


def test_a_step_that_is_skipped_trains_no_critic(build):
    policy = tiny_policy()
    objective = {"advantage": Critic(), "loss": Poisoned(), "aggregation": Token()}
    learner = build(policy, objective=objective)
    metrics = learner.train(even_batch(), between=nothing)
    assert (metrics["skipped"], learner.version) == (1.0, 0)
    assert (learner._critic._module["head"].weight == 0.0).all()


def test_a_critic_learns_what_is_to_be_had(build):
    """Prompts of known difficulty: the values come to explain the returns."""
    rng = np.random.default_rng(0)
    groups = [group(rng, number, 4, [completion(rng, i, 3, value=float(number % 2)) for i in range(4)]) for number in range(4)]
    learner = with_critic(build, tiny_policy(), learning_rate_factor=10.0)
    batch = Batch(0, tuple(groups))
    measured = [learner.train(batch, between=nothing) for _ in range(40)]
    assert measured[0]["critic_explained_variance"] == pytest.approx(0.0, abs=1e-6)
    assert measured[-1]["critic_explained_variance"] > 0.9
    assert measured[-1]["critic_loss"] < 0.1 * measured[0]["critic_loss"]


def test_groups_of_one_and_of_equal_rewards_carry_gradient(build):
    rng = np.random.default_rng(1)
    alone = Batch(0, (group(rng, 0, 3, [completion(rng, 0, 4, value=1.0)]),))
    assert with_critic(build, tiny_policy()).train(alone, between=nothing)["grad_norm"] > 0.0


def test_a_restored_critic_goes_on_bit_for_bit(build, tmp_path):
    learner = with_critic(build, tiny_policy())
    for seed in range(3):
        learner.train(even_batch(seed), between=nothing)
    learner.save(tmp_path)
    expected = [learner.train(even_batch(seed), between=nothing) for seed in range(3, 5)]
    resumed = with_critic(build, Policy.load(tmp_path, head="fp32", dtype="float32"))
    resumed.restore(tmp_path)
    assert [resumed.train(even_batch(seed), between=nothing) for seed in range(3, 5)] == expected


def test_a_checkpoint_without_a_critic_is_refused(build, tmp_path):
    build(tiny_policy()).save(tmp_path)
    with pytest.raises(DataError, match="no trainer state"):
        with_critic(build, tiny_policy()).restore(tmp_path)


@pytest.mark.parametrize("recomputes", [False, True])
def test_its_flops_are_booked_apart_and_are_those_that_torch_counts(build, meter, recomputes):
    policy, batch = tiny_policy(), even_batch()
    policy.module.set_attn_implementation("eager")
    learner = with_critic(build, policy, trainer={"activation_checkpointing": recomputes})
    with FlopCounterMode(display=False) as counter:
        learner.train(batch, between=nothing)
    costs = {cost.detail: cost for cost in meter.collect() if cost.activity is Activity.TRAIN}
    assert costs.keys() == {"", "critic"}
    useful = sum(cost.flops for cost in costs.values())
    overhead = sum(cost.overhead_flops for cost in costs.values())
    # Whole rows where they are computed again, or else 3 prompts of 4 tokens and what follows them.
    num_rows, length = (12, 8) if recomputes else (3, 4)
    above = num_rows * (length**2 - int(causal_pairs(np.array([length]))[0])) * policy.flops.attention_per_pair
    passes = 3 + recomputes
    # Torch stops computing again before each layer's last matmul, whose result nothing asks for.
    spared = recomputes * 2 * 2.0 * num_rows * length * MODEL.num_layers * MODEL.hidden_size * MODEL.intermediate_size
    assert useful + overhead + 2 * passes * above == pytest.approx(counter.get_total_flops() + spared, rel=0.01)
    # After a prompt there is a mask, under which scores of later tokens are computed and thrown away.
    masked = 2 * passes * 12 * (4 * 8 - (4 * 4 + 10)) * policy.flops.attention_per_pair
    assert (overhead > masked) if recomputes else (overhead == pytest.approx(masked))
    assert costs["critic"].flops > 0.5 * costs[""].flops
    assert costs["critic"].tokens == costs[""].tokens == 60


def test_its_memory_is_told(build):
    metrics = with_critic(build, tiny_policy()).train(even_batch(), between=nothing)
    num_weights = sum(one.numel() for one in tiny_policy().module.base_model.parameters()) + 16
    # Weight, gradient and two moments, of fp32, and a step count for each tensor.
    assert metrics["memory_critic_gib"] * 2**30 == pytest.approx(16 * num_weights, rel=0.02)
    assert 1.9 * metrics["memory_critic_gib"] < metrics["memory_gib"] < 2.1 * metrics["memory_critic_gib"]


@pytest.mark.parametrize(("bytes_per_parameter", "fits"), [(30, False), (33, True)])
def test_the_memory_of_all_copies_together_is_asked_for(build, monkeypatch, bytes_per_parameter, fits):
    """Gradient and moments of the policy 12 bytes, the critic 16, the reference 4, beside weights that are there already."""
    policy = tiny_policy()
    free = bytes_per_parameter * sum(one.numel() for one in policy.module.parameters())
    monkeypatch.setattr(_memory, "available_bytes", lambda: free)
    objective = {"advantage": Critic(), "terms": (Kl(coefficient=0.1),)}
    if fits:
        build(policy, objective=objective)
        return
    with pytest.raises(ScalerlError, match=r"trainer: training and a critic and the reference of a KL term takes .* are free; do without"):
        build(policy, objective=objective)
