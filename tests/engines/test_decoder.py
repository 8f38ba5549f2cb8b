"""Our forward pass against the Hugging Face module: every architecture that `_decoder.py` tells, and those that it must not touch."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from scalerl.engines._blocks import More, Whole
from scalerl.engines._body import CachedBody
from scalerl.engines._decoder import Decoder
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.testing.engines import noisy
from tests.engines.tiny import assert_log_probs, ragged_requests, run, tiny_policy

COMMON = {
    "vocab_size": 18,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
SCALINGS = {
    "default": {"rope_type": "default", "rope_theta": 1e4},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32},
}
TOLD = {
    "llama": LlamaConfig(**COMMON),
    "llama with biases": LlamaConfig(**COMMON, attention_bias=True, mlp_bias=True),
    "llama with all heads": LlamaConfig(**COMMON | {"num_key_value_heads": 4}),
    "llama with one key": LlamaConfig(**COMMON | {"num_key_value_heads": 1}),
    "llama with large heads": LlamaConfig(**COMMON, head_dim=20),
    "llama with tied embeddings": LlamaConfig(**COMMON, tie_word_embeddings=True),
    "llama with gelu": LlamaConfig(**COMMON, hidden_act="gelu"),
    "mistral": MistralConfig(**COMMON, sliding_window=None),
    "qwen2": Qwen2Config(**COMMON),
    "qwen3": Qwen3Config(**COMMON, head_dim=16),
    "qwen3 with biases": Qwen3Config(**COMMON, head_dim=16, attention_bias=True),
    **{f"qwen3 with {name} rope": Qwen3Config(**COMMON, head_dim=16, rope_parameters=rope) for name, rope in SCALINGS.items()},
}
LEFT_ALONE = {
    "mixture of experts": Qwen3MoeConfig(**COMMON, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24),
    "learned positions": GPT2Config(vocab_size=18, n_positions=256, n_embd=48, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=1),
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def fresh(config, *, dtype=torch.float32, head="fp32"):
    """A policy of `config` with uneven weights: norms are no ones, and biases no zeros."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=dtype).eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return Policy(module, tiny_policy().tokenizer, head=head)


class Rows:
    """Random tokens for the rows of a cache, and the Hugging Face module's logits of all that a row holds."""

    def __init__(self, policy, meter):
        self.policy = policy
        self.body = CachedBody(policy, num_rows=8, meter=meter)
        self.random = np.random.default_rng(0)
        self.held = {}

    def whole(self, width, rows):
        """One new sequence that all `rows` go on from."""
        return Whole(self.random.integers(0, 18, (1, width)), np.array(rows), np.zeros(len(rows), np.int64))

    def more(self, width, rows):
        """New tokens of their own for `rows`."""
        rows = rows if isinstance(rows, slice) else np.array(rows)
        block = More(self.random.integers(0, 18, (len(np.arange(8)[rows]), width)), rows, np.zeros(0))
        return dataclasses.replace(block, starts=np.array([len(self.held[row]) for row in block.row_index]))

    def differences(self, blocks):
        """Largest difference of the logits of each block from those of whole passes, relative to the largest logit."""
        hidden = self.body.forward(blocks, activity=Activity.GENERATE)
        logits = self.body.logits(hidden, activity=Activity.GENERATE).split([block.ids.size for block in blocks])
        for block, found in zip(blocks, logits, strict=True):
            is_whole = isinstance(block, Whole)
            for number, row in enumerate(block.rows if is_whole else block.row_index):
                ids = block.ids[block.sequence_of_row[number] if is_whole else number]
                self.held[row] = [*([] if is_whole else self.held[row]), *ids]
                with torch.no_grad():
                    expected = self.policy.module(input_ids=torch.tensor([self.held[row]])).logits[0, -len(ids) :]
                at = 0 if is_whole else number * len(ids)
                yield ((found[at : at + len(ids)] - expected).abs().max() / expected.abs().max()).item()


def largest_difference(policy, meter):
    """Prompts, steps, phrases, and prompts beside the rows that go on from them, all against whole passes."""
    rows = Rows(policy, meter)
    found = [*rows.differences([rows.whole(19, [3]), rows.whole(1, [0, 1]), rows.whole(14, [2])])]
    for _ in range(2):
        found += rows.differences([rows.more(1, slice(0, 4))])
    found += rows.differences([rows.more(3, [2]), rows.more(2, [0, 3])])
    found += rows.differences([rows.more(1, slice(0, 3)), rows.whole(19, [5]), rows.whole(30, [4])])
    prompt = rows.whole(6, [6, 1])
    rows.held |= {6: prompt.ids[0].tolist(), 1: prompt.ids[0].tolist()}
    found += rows.differences([prompt, rows.more(9, [6]), rows.more(40, [1])])
    rows.body.move(source=np.array([1, 4]), target=np.array([4, 0]), length=46)
    rows.held |= {4: rows.held[1], 0: rows.held[4]}
    return max([*found, *rows.differences([rows.more(1, slice(0, 7))])])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", TOLD)
def test_logits_are_those_of_the_module(meter, name, dtype):
    policy = fresh(TOLD[name], dtype=dtype)
    assert Decoder.runs(policy)
    assert largest_difference(policy, meter) < TOLERANCE[dtype]


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_other_decoders_run_through_the_module(meter, name):
    policy = fresh(LEFT_ALONE[name])
    assert not Decoder.runs(policy)
    assert largest_difference(policy, meter) < 1e-5


def test_what_only_resembles_a_decoder_that_is_told_is_left_alone():
    changing = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert not Decoder.runs(fresh(LlamaConfig(**COMMON, rope_parameters=changing)))
    policy = fresh(TOLD["llama"])
    adapted = policy.copied()
    attention = adapted.module.model.layers[1].self_attn
    attention.q_proj = torch.nn.Sequential(attention.q_proj, torch.nn.Dropout(0.0))
    assert not Decoder.runs(adapted)
    derived = policy.copied()
    derived.module.model.__class__ = type("LlamaModel", (type(derived.module.model),), {"__module__": "remote_code"})
    assert not Decoder.runs(derived)
    assert Decoder.runs(policy)


@pytest.mark.parametrize("head", ["fp32", "body"])
def test_a_body_in_bfloat16_under_either_head(meter, head):
    policy = fresh(TOLD["qwen3"], dtype=torch.bfloat16, head=head)
    policy.cache_head()
    rows = Rows(policy, meter)
    blocks = [rows.whole(19, [3])]
    hidden = rows.body.forward(blocks, activity=Activity.GENERATE)
    with torch.no_grad():
        expected = policy.hidden(torch.from_numpy(blocks[0].ids))[0]
    assert (hidden - expected).abs().max() < 0.02 * expected.abs().max()
    logits = rows.body.logits(hidden, activity=Activity.GENERATE)
    weight = policy.module.lm_head.weight
    exact = hidden.float() @ weight.float().T
    assert logits.dtype == torch.float32
    if head == "fp32":
        torch.testing.assert_close(logits, exact, rtol=1e-5, atol=1e-5)
    else:
        assert (logits - exact).abs().max() > 1e-3


def test_weights_are_held_once_and_those_that_are_loaded_are_in_use_at_once(meter):
    policy = fresh(TOLD["qwen2"])
    before = {name: tensor.clone() for name, tensor in policy.tensors().items()}
    bodies = [CachedBody(policy, num_rows=8, meter=meter) for _ in range(2)]
    attention = policy.module.model.layers[0].self_attn
    assert {parameter.untyped_storage().data_ptr() for parameter in (attention.q_proj.weight, attention.k_proj.weight)} == {
        attention.v_proj.weight.untyped_storage().data_ptr()
    }
    assert {name: torch.equal(tensor, before[name]) for name, tensor in policy.tensors().items()} == dict.fromkeys(before, True)
    frozen = Rows(policy, meter)
    frozen.body.freeze()
    kept = frozen.body.policy
    assert kept is not policy
    policy.load_tensors(noisy(policy))
    for body, owner in ((bodies[0], policy), (bodies[1], policy), (frozen.body, kept)):
        rows = Rows(owner, meter)
        rows.body = body
        assert max(rows.differences([rows.whole(19, [3])])) < 1e-5
    assert {name: torch.equal(tensor, before[name]) for name, tensor in kept.tensors().items()} == dict.fromkeys(before, True)


def test_joined_weights_are_saved_and_loaded_as_they_are(meter, tmp_path):
    policy = tiny_policy()
    CachedBody(policy, num_rows=2, meter=meter)
    policy.save(tmp_path)
    loaded = Policy.load(tmp_path, head="fp32", dtype="float32")
    assert {name: torch.equal(tensor, loaded.tensors()[name]) for name, tensor in policy.tensors().items()} == dict.fromkeys(
        policy.tensors(), True
    )


@pytest.mark.parametrize("name", ["mixture of experts", "mistral"])
@pytest.mark.parametrize("kv", ["keep", "reprefill"])
def test_the_engine_runs_on_either_path(build, name, kv):
    policy = fresh((TOLD | LEFT_ALONE)[name])
    loop = build(policy, kv=kv, slots=9)
    groups = run(loop, ragged_requests(policy))
    assert_log_probs(policy, groups)
    loop.submit(ragged_requests(policy))
    loop.step()
    loop.take_weights(1, policy.tensors(), between=lambda: None)
    assert_log_probs(policy, run(loop))
