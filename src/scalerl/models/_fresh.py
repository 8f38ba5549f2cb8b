"""Tiny models from nothing: a configuration, weights from a seed, and a real fast tokenizer of characters or bytes."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from scalerl.core.errors import UsageError
from scalerl.models._policy import Policy, check_memory
from scalerl.models.config import Config

PAD, EOS = "<pad>", "<eos>"
_SPECIAL = (PAD, EOS)
_ARCHITECTURES: dict[str, Any] = {"qwen3": Qwen3Config, "llama": LlamaConfig}


def fresh_policy(settings: Config, *, alphabet: str | None, seed: int) -> Policy:
    """A policy with fresh weights; the same on every machine for one seed."""
    tokenizer = fast_tokenizer(byte_tokenizer() if alphabet is None else character_tokenizer(alphabet))
    config = _ARCHITECTURES[settings.architecture](
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=settings.num_heads,
        num_key_value_heads=settings.num_kv_heads,
        head_dim=settings.hidden_size // settings.num_heads,
        intermediate_size=settings.intermediate_size,
        max_position_embeddings=settings.max_tokens,
        rope_parameters={"rope_type": "default", "rope_theta": settings.rope_theta},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    check_memory(config, where="model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, settings.dtype))
    module.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True)
    return Policy(module.eval(), tokenizer, head=settings.head)


def character_tokenizer(alphabet: str) -> Tokenizer:
    """One token per character of `alphabet`; another character is an error when text is encoded.

    Raises:
        UsageError: a character occurs twice, or there is none.
    """
    if not alphabet or len(set(alphabet)) != len(alphabet):
        raise UsageError(f"{alphabet!r} is no alphabet of different characters", remedy="name every character once")
    tokenizer = Tokenizer(models.WordLevel({token: index for index, token in enumerate((*_SPECIAL, *alphabet))}, unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(_SPECIAL))
    return tokenizer


def byte_tokenizer() -> Tokenizer:
    """One token per byte of UTF-8: any text can be encoded."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: index for index, token in enumerate((*_SPECIAL, *symbols))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    return tokenizer


def fast_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer as transformers knows it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )
