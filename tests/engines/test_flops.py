"""Booked FLOPs against torch.utils.flop_counter, which counts what the matmuls really did."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalerl.objective.length_controls.interruption import Interruption
from scalerl.records.cost import Activity
from tests.engines.tiny import ragged_requests, run, tiny_policy


def flash_flops(query, key, value, *_, **__):
    """Scores and weighted values of torch's own kernel for attention on a CPU, which the counter does not know: 2 FLOPs each."""
    batch, heads, num_queries, size = query
    return 4 * batch * heads * num_queries * key[2] * size


def counting():
    """A counter of what all matmuls did."""
    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flash_flops})


def eager(policy):
    """The same model with attention as plain matmuls, which the counter knows on every device."""
    policy.module.set_attn_implementation("eager")
    return policy


def costs(meter):
    return {cost.activity: cost for cost in meter.collect()}


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_useful_and_overhead_flops_are_all_that_was_done(build, meter, architecture):
    policy = eager(tiny_policy(architecture=architecture, num_heads=4, num_kv_heads=2, hidden_size=64))
    control = Interruption(after_tokens=(3, 5), phrase="=-=", answer_tokens=4)
    loop = build(policy, control=control, slots=10, kv="reprefill")
    with counting() as counter:
        loop.submit(ragged_requests(policy))
        finished = [group for _ in range(4) for group in loop.step()]
        loop.take_weights(1, policy.tensors(), between=lambda: None)
        finished += run(loop)
        loop.evaluate(ragged_requests(policy), between=lambda: None)
        loop.score([(group.prompt.token_ids, tuple(group.completions[0].token_ids.tolist())) for group in finished])
    booked = costs(meter)
    assert set(booked) == {Activity.GENERATE, Activity.REPREFILL, Activity.EVALUATE, Activity.PUSH}
    assert sum(cost.flops + cost.overhead_flops for cost in booked.values()) == pytest.approx(counter.get_total_flops(), rel=1e-12)


def test_useful_flops_are_those_of_feeding_token_by_token_at_true_context(build, meter):
    policy = eager(tiny_policy(num_heads=4, num_kv_heads=2, hidden_size=64))
    groups = run(build(policy, completion_tokens=6), ragged_requests(policy, num_completions=2))
    cost = costs(meter)[Activity.GENERATE]
    expected = 0
    for group in groups:
        prompt = list(group.prompt.token_ids)
        expected += fed_flops(policy, prompt, first=0, num_logits=1)  # once for the whole group
        for completion in group.completions:
            ids = completion.token_ids.tolist()
            expected += fed_flops(policy, prompt + ids[:-1], first=len(prompt), num_logits=len(ids) - 1)
    assert cost.flops == pytest.approx(expected, rel=0.01)
    assert cost.tokens == sum(len(completion.token_ids) for group in groups for completion in group.completions)


def fed_flops(policy, ids, *, first, num_logits):
    """What torch counts for the positions from `first` on, each fed alone, so that it attends to its own past and nothing else."""
    cache = policy.module(input_ids=torch.tensor([ids[:first]]), use_cache=True).cache if first else None
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for position in range(first, len(ids)):
            output = policy.module.base_model(input_ids=torch.tensor([[ids[position]]]), cache=cache, use_cache=True)
            cache = output.cache
        if num_logits:
            policy.logits(torch.zeros(num_logits, policy.config.hidden_size))
    return counter.get_total_flops()
