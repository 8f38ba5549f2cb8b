"""What vLLM is started with: everything that it is told by settings, by the policy and by the lengths of a run."""

from __future__ import annotations

from dataclasses import dataclass

from scalerl.engines._vllm_weights import Weights
from scalerl.engines.vllm import Vllm
from scalerl.models._memory import available_bytes
from scalerl.models._policy import Policy

_CPU_BLOCK_TOKENS = 128
"""Tokens that share a block of the cache on a CPU."""
_CPU_CACHE_SHARE = 8
"""A cache in main memory takes an eighth of what is free at most: vLLM touches all of it at once."""


@dataclass(frozen=True, slots=True)
class Start:
    """What vLLM is started with."""

    config: str
    """The model's config.json. Its weights lie in `weights`, and vLLM sees no text, so that it needs no tokenizer."""
    architecture: str
    dtype: str
    head_dtype: str
    weights: Weights
    max_model_len: int
    """Tokens of the longest prompt and completion together."""
    max_num_seqs: int
    """Completions sampled at once."""
    cpu_cache_bytes: int
    """Of the cache where it lies in main memory."""
    temperature: float
    stop_ids: tuple[int, ...]
    tensor_parallel: int
    gpu_memory_utilization: float
    enforce_eager: bool


def start_of(settings: Vllm, policy: Policy, *, weights: Weights, prompt_tokens: int | None, completion_tokens: int) -> Start:
    """The start of an engine for prompts of `prompt_tokens` at most; without a bound, as long as the model has positions for."""
    dtype = policy.module.dtype
    positions = getattr(policy.config, "max_position_embeddings", None)
    asked = None if prompt_tokens is None else prompt_tokens + completion_tokens
    longest = min(length for length in (positions, asked) if length is not None)
    num_sequences = 2 * settings.slots
    return Start(
        config=policy.config.to_json_string(),
        architecture=type(policy.module).__name__,
        dtype=str(dtype).removeprefix("torch."),
        head_dtype="float32" if policy.head == "fp32" else "model",
        weights=weights,
        max_model_len=longest,
        max_num_seqs=num_sequences,
        cpu_cache_bytes=_cpu_cache_bytes(policy, num_sequences=num_sequences, longest=longest),
        temperature=settings.temperature,
        stop_ids=tuple(sorted(policy.stop_ids)),
        tensor_parallel=settings.tensor_parallel,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        enforce_eager=settings.enforce_eager,
    )


def _cpu_cache_bytes(policy: Policy, *, num_sequences: int, longest: int) -> int:
    """What that many sequences of full length need, or the share of the memory that is free."""
    config = policy.config
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    numbers_per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * head_size
    num_blocks = num_sequences * -(-longest // _CPU_BLOCK_TOKENS) + 1  # vLLM keeps one for itself.
    needed: int = num_blocks * _CPU_BLOCK_TOKENS * numbers_per_token * policy.module.dtype.itemsize
    free = available_bytes()
    return needed if free is None else min(needed, free // _CPU_CACHE_SHARE)
