"""FLOPs of forward passes against torch.utils.flop_counter, which counts what the matmuls really did."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, GPT2Config, Qwen3MoeConfig

from scalerl.accounting.flops import ModelFlops, causal_pairs
from scalerl.models._policy import Policy
from scalerl.models.config import Config


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(2, 2), (4, 1), (6, 2)])
def test_a_forward_pass_costs_what_torch_counts(architecture, num_heads, num_kv_heads):
    settings = Config(
        architecture=architecture, hidden_size=48, num_layers=3, num_heads=num_heads, num_kv_heads=num_kv_heads, dtype="float32"
    )
    policy = settings.build(alphabet="0123456789", seed=0)
    policy.module.set_attn_implementation("eager")  # attention as plain matmuls, over the whole square of keys
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        policy.logits(policy.hidden(torch.ones(5, 7, dtype=torch.int64))[:, -2:])
    booked = policy.flops.forward(num_tokens=5 * 7, num_pairs=5 * 7 * 7, num_logits=5 * 2)
    assert booked == counter.get_total_flops()


@pytest.mark.parametrize(
    "config",
    [
        # Layers that are matrices without being torch.nn.Linear.
        GPT2Config(vocab_size=12, n_embd=32, n_layer=2, n_head=4, n_positions=16),
        # Four experts in one tensor, two of which see a token.
        Qwen3MoeConfig(
            vocab_size=12,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            moe_intermediate_size=16,
            num_experts=4,
            num_experts_per_tok=2,
        ),
    ],
    ids=["gpt2", "qwen3_moe"],
)
def test_every_kind_of_matrix_counts_once_per_token_that_meets_it(config):
    # One expert after the other, as plain matmuls, which the counter knows.
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    policy = Policy(module, Config().build(alphabet="0123456789", seed=0).tokenizer, head="fp32")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        policy.logits(policy.hidden(torch.arange(12)[None]))
    assert policy.flops.forward(num_tokens=12, num_pairs=12 * 12, num_logits=12) == counter.get_total_flops()


def test_the_sum_is_that_of_its_parts():
    # 3 tokens x 10, 6 pairs x 2, 1 logit x 100
    assert ModelFlops(10.0, 2.0, 100.0).forward(num_tokens=3, num_pairs=6, num_logits=1) == 142.0


@given(st.integers(0, 50), st.integers(0, 50))
def test_pairs_are_the_keys_that_each_position_attends_to(start, more):
    pairs = causal_pairs(np.array([start + more]), start=np.array([start]))
    assert pairs.tolist() == [sum(position + 1 for position in range(start, start + more))]
