"""KL and entropy terms in the trainer: the gradient of their equations, the frozen reference, and what it costs."""

import copy

import pytest
import torch

from scalerl.core.errors import DataError
from scalerl.models._policy import Policy
from scalerl.objective.aggregations.token import Token
from scalerl.objective.losses.reinforce import Reinforce
from scalerl.objective.terms.entropy import Entropy
from scalerl.objective.terms.kl import Kl
from scalerl.records.cost import Activity
from tests.trainers.tiny import even_batch, ragged_batch, tiny_policy


def nothing():
    pass


def with_terms(build, policy, *terms):
    return build(policy, objective={"terms": terms, "loss": Reinforce(), "aggregation": Token()}, weight_decay=0.0)


def log_softmax(module, g, c):
    prompt = list(g.prompt.token_ids)
    ids = torch.tensor([[*prompt, *c.token_ids.tolist()]])
    return torch.log_softmax(module(input_ids=ids).logits[0, len(prompt) - 1 : -1], dim=-1)


def own_tokens(batch):
    return [(g, c, torch.from_numpy(c.trainable)) for g in batch.groups for c in g.completions if c.score.value is not None]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_gradient_of_a_kl_term_is_that_of_its_estimator(build, gradients, estimator):
    policy, batch = tiny_policy(), ragged_batch()
    reference = copy.deepcopy(policy.module)
    plain, penalised = with_terms(build, policy), None
    plain.train(batch, between=nothing)  # Now the policy is no longer its reference.
    penalised = with_terms(build, policy, Kl(coefficient=0.3, estimator=estimator))
    penalised._reference.load_tensors({name: one.detach() for name, one in reference.named_parameters()})

    parts = []
    for g, c, own in own_tokens(batch):
        index = (range(len(c.token_ids)), c.token_ids.tolist())
        with torch.no_grad():
            known = log_softmax(reference, g, c)[index]
        d = (known - log_softmax(policy.module, g, c)[index])[own]
        parts.append({"k1": -d, "k2": 0.5 * d**2, "k3": d.exp() - d - 1.0}[estimator])
    loss = 0.3 * torch.cat(parts).mean()
    named = dict(policy.module.named_parameters())
    expected = dict(zip(named, torch.autograd.grad(loss, named.values()), strict=True))

    gradients.clear()
    before = {name: one.detach().clone() for name, one in named.items()}
    penalised.train(batch, between=nothing)
    with torch.no_grad():
        for name, one in named.items():
            one.copy_(before[name])
    with_terms(build, policy).train(batch, between=nothing)
    with_term, without = gradients
    for name, gradient in expected.items():
        assert torch.allclose(with_term[name] - without[name], gradient, rtol=1e-3, atol=2e-6), name


def test_the_gradient_of_an_entropy_term_is_that_of_the_entropy(build, gradients):
    policy, batch = tiny_policy(), ragged_batch()
    parts = []
    for g, c, own in own_tokens(batch):
        log_pi = log_softmax(policy.module, g, c)
        parts.append(-(log_pi.exp() * log_pi).sum(-1)[own])
    named = dict(policy.module.named_parameters())
    expected = torch.autograd.grad(-0.2 * torch.cat(parts).mean(), named.values())
    expected = dict(zip(named, expected, strict=True))
    with_terms(build, tiny_policy(), Entropy(coefficient=0.2)).train(batch, between=nothing)
    with_terms(build, tiny_policy()).train(batch, between=nothing)
    for name, gradient in expected.items():
        assert torch.allclose(gradients[0][name] - gradients[1][name], gradient, rtol=1e-3, atol=2e-6), name


def test_a_reference_that_is_the_policy_pulls_nowhere(build, gradients):
    with_terms(build, tiny_policy(), Kl(coefficient=10.0)).train(ragged_batch(), between=nothing)
    with_terms(build, tiny_policy()).train(ragged_batch(), between=nothing)
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=1e-5), name


def test_the_reference_of_a_resumed_run_is_the_first_one(build, tmp_path):
    term = Kl(coefficient=0.5)
    learner = with_terms(build, tiny_policy(), term)
    for seed in range(3):
        learner.train(even_batch(seed), between=nothing)
    learner.save(tmp_path)
    expected = [learner.train(even_batch(seed), between=nothing) for seed in range(3, 5)]
    resumed = with_terms(build, Policy.load(tmp_path, head="fp32", dtype="float32"), term)
    resumed.restore(tmp_path)
    assert [resumed.train(even_batch(seed), between=nothing) for seed in range(3, 5)] == expected
    (tmp_path / "reference.safetensors").unlink()
    with pytest.raises(DataError, match="no trainer state"):
        resumed.restore(tmp_path)


def test_the_references_pass_is_booked_apart(build, meter):
    policy = tiny_policy()
    metrics = with_terms(build, policy, Kl(coefficient=0.1)).train(even_batch(), between=nothing)
    assert metrics["memory_reference_gib"] * 2**30 == 4 * sum(one.numel() for one in policy.module.parameters())
    costs = {cost.detail: cost for cost in meter.collect() if cost.activity is Activity.TRAIN}
    assert costs["reference"].flops == pytest.approx(costs[""].flops / 3)
    assert costs["reference"].tokens == costs[""].tokens
