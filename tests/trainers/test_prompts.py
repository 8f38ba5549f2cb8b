"""Prompts read once for all their completions: the same states and gradients as those of whole rows, with less work."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from scalerl.accounting.flops import TrainingFlops
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.trainers._passes import Books, Passes
from scalerl.trainers._prompts import _Joint, can_share
from scalerl.trainers._rows import Row
from tests.trainers.tiny import tiny_policy

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24}
CONFIGS = {config.model_type: config for config in (LlamaConfig, Qwen2Config, Qwen3Config, MistralConfig)}


def policy_of(architecture, *, dtype=torch.float64):
    """A policy of another architecture, in doubles, with the tiny tokenizer."""
    own = {"sliding_window": None} if architecture == "mistral" else {}
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(CONFIGS[architecture](vocab_size=13, **SHAPE, **own)).to(dtype).eval()
    return Policy(module, tiny_policy().tokenizer, head="fp32")


def rows(*, prompts=((3, 4, 5, 6, 7), (8,), (9, 10)), lengths=(1, 4, 7), seed=0):
    """Completions of every one of `lengths` for every prompt."""
    rng = np.random.default_rng(seed)
    return [Row.of(prompt, rng.integers(2, 13, length)) for length in lengths for prompt in prompts]


def passes(policy, meter, *, shares_prompts, max_tokens=10_000):
    books = Books(meter, Activity.TRAIN, TrainingFlops.of(policy.flops))
    return Passes(policy.hidden, books, max_tokens, shares_prompts, policy.pad_id, policy.device)


def read(policy, one):
    """A number of the state before every token, by row, and the gradient of their sum, by weight."""
    policy.module.zero_grad()
    of_row = {}
    direction = torch.linspace(-1.0, 2.0, SHAPE["hidden_size"], dtype=torch.float64)
    for batch, states in one.over(one_rows := rows()):
        told = (states @ direction).sin()
        told.sum().backward()
        for row, values in zip(batch.rows, batch.split(told.detach()), strict=True):
            of_row[row.token_ids.tobytes()] = values
    assert len(of_row) == len(one_rows)
    return of_row, {name: parameter.grad for name, parameter in policy.module.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("architecture", CONFIGS)
@pytest.mark.parametrize("max_tokens", [10_000, 14, 1])
def test_l1_states_and_gradients_are_those_of_whole_rows(architecture, max_tokens, meter):
    policy = policy_of(architecture)
    assert can_share(policy.config)
    states, gradients = read(policy, passes(policy, meter, shares_prompts=False))
    shared, of_shared = read(policy, passes(policy, meter, shares_prompts=True, max_tokens=max_tokens))
    for ids, expected in states.items():
        assert shared[ids] == pytest.approx(expected, abs=1e-6)
    assert of_shared.keys() == gradients.keys()
    scale = max(one.abs().max() for one in gradients.values())
    for name, gradient in gradients.items():
        assert (of_shared[name] - gradient).abs().max() <= 1e-6 * scale, name


def test_gradients_at_a_prompt_are_summed_in_fp32_below_a_bf16_body():
    """300 micro-batches of one small gradient each: in bf16 their sum would stand still at 256 of them."""
    joint = _Joint.at(torch.ones(1, 1, 2, 4, dtype=torch.bfloat16, requires_grad=True) * 1.0)
    for _ in range(300):
        joint.before(torch.zeros(1, 1, 1, 4, dtype=torch.bfloat16), rows=torch.tensor([0])).sum().backward()
    assert joint.leaf.grad.eq(300.0).all()


def test_without_gradients_nothing_is_kept_for_them(meter):
    policy = policy_of("llama")
    with torch.no_grad():
        states = [states for _, states in passes(policy, meter, shares_prompts=True).over(rows())]
    assert not any(one.requires_grad for one in states)


def test_every_prompt_is_read_once_and_booked_once(meter):
    policy = policy_of("qwen3")
    widths = []
    policy.module.model.register_forward_pre_hook(
        lambda _, __, arguments: widths.append(tuple(arguments["input_ids"].shape)), with_kwargs=True
    )
    for _, states in passes(policy, meter, shares_prompts=True).over(rows()):
        states.sum().backward()
    assert widths == [(3, 5), (9, 6)]
    (cost,) = meter.collect()
    num_pairs = 15 + 1 + 3 + sum(sum(range(start + 1, start + length)) for start in (5, 1, 2) for length in (1, 4, 7))
    useful = policy.flops.forward(num_tokens=8 + 3 * (0 + 3 + 6), num_pairs=num_pairs, num_logits=36)
    assert (cost.flops, cost.tokens) == (pytest.approx(3 * useful), 36)
    done = policy.flops.forward(num_tokens=3 * 5 + 9 * 6, num_pairs=3 * 15 + 9 * 6 * (5 + 6), num_logits=36)
    assert cost.flops + cost.overhead_flops == pytest.approx(3 * done)


def test_prompts_leave_half_of_the_room_to_completions(meter):
    policy = policy_of("llama")
    shapes = []
    policy.module.model.register_forward_pre_hook(lambda _, __, arguments: shapes.append(arguments["input_ids"].shape[0]), with_kwargs=True)
    sizes = [len(batch.rows) for batch, _ in passes(policy, meter, shares_prompts=True, max_tokens=14).over(rows())]
    # Prompts of 5 and 1 tokens, then the one of 2; beside them completions of 8 and of 12 tokens in all.
    assert shapes == [2, *sizes[:4], 1, *sizes[4:]]
    assert sizes == [1, 1, 2, 2, 3]


def test_where_little_is_saved_rows_are_read_whole(meter):
    policy = policy_of("llama")
    seen = []
    policy.module.model.register_forward_pre_hook(lambda _, __, arguments: seen.append(arguments["use_cache"]), with_kwargs=True)
    for prompts, lengths in ((((3, 4), (5, 6)), (30, 40)), (((3, 4, 5), (6, 7, 8)), (9,))):
        for _ in passes(policy, meter, shares_prompts=True).over(rows(prompts=prompts, lengths=lengths)):
            pass
    assert seen == [False] * len(seen)


def test_what_knows_the_past_in_other_ways_is_read_whole():
    sliding = MistralConfig(vocab_size=13, **SHAPE, sliding_window=4)
    mixed = Gemma3TextConfig(vocab_size=13, **SHAPE, head_dim=4, layer_types=["full_attention", "sliding_attention"])
    assert not any(map(can_share, (sliding, mixed, GPT2Config())))


def test_an_answer_of_one_token_after_each_prompt_is_read(meter):
    """No completion has an input of its own: all is predicted by the prompts' last states."""
    policy = policy_of("llama")
    one = rows(lengths=(1, 1))
    one = [*one, *copy.deepcopy(one)]
    expected = {}
    for batch, states in passes(policy, meter, shares_prompts=False).over(one):
        expected |= {row.token_ids.tobytes(): value for row, value in zip(batch.rows, batch.split(states.detach().sum(-1)), strict=True)}
    for batch, states in passes(policy, meter, shares_prompts=True).over(one):
        for row, value in zip(batch.rows, batch.split(states.detach().sum(-1)), strict=True):
            assert value == pytest.approx(expected[row.token_ids.tobytes()], abs=1e-9)
