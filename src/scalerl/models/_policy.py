"""The working class of all models: a Hugging Face causal LM with its head taken apart, and its tokenizer.

The head is a matmul of its own because its precision is an ingredient (arXiv 2510.13786, section 3.2): logits come from
an fp32 matmul of the body's hidden states, not from a low-precision one that is cast afterwards. Generator and trainer
both use this class, so neither side can have it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as transformers_logging

from scalerl.accounting.flops import ModelFlops
from scalerl.core.errors import DataError, ScalerlError
from scalerl.models._memory import check_room

transformers_logging.disable_progress_bar()

Head = Literal["fp32", "body"]
Dtype = Literal["float32", "bfloat16"]

FP32_BYTES = 4
BYTES_PER_TRAINED_PARAMETER = 4 * FP32_BYTES
"""fp32 weight, gradient and the two moments of AdamW."""


class Policy:
    """A causal LM whose logits are computed here; everything else is Hugging Face's.

    Shapes: N sequences, T tokens, H hidden size, V vocabulary.
    """

    def __init__(self, module: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, head: Head) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.head = head
        self.config = module.config
        self._projection = cast("torch.nn.Linear", module.get_output_embeddings())
        self._cached_weight: Tensor | None = None

    @classmethod
    def load(cls, path: str | Path, *, head: Head, dtype: Dtype, trust_remote_code: bool = False) -> Self:
        """The policy in a checkpoint folder, or one of the hub by name.

        Raises:
            DataError: there is no such checkpoint, it is no causal LM with a fast tokenizer, or its logits are not those of a
                linear head.
            ScalerlError: it needs more memory than the machine has.
        """
        where = str(path)
        remedy = "give a folder that AutoModelForCausalLM and AutoTokenizer load"
        if not Path(path).is_dir() and (Path(path).is_absolute() or where.startswith(".") or where.count("/") > 1):
            raise DataError("there is no such checkpoint folder", where=where, remedy=remedy)
        try:
            config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
            itemsize = getattr(torch, dtype).itemsize
            check_memory(config, where=where, trust_remote_code=trust_remote_code, bytes_per_parameter=itemsize)
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                path, dtype=getattr(torch, dtype), trust_remote_code=trust_remote_code, output_loading_info=True
            )
            tokenizer: Any = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
        except ScalerlError:
            raise
        except Exception as error:  # Foreign files fail in any way.
            reason = " ".join(str(error).split()).partition(". ")[0][:200]
            is_folder = Path(path).is_dir()
            what = "this is no causal language model with a tokenizer" if is_folder else "there is no such folder, and the hub gives none"
            raise DataError(f"{what} ({reason})", where=where, remedy=remedy) from error
        module, loading = loaded
        if loading["missing_keys"]:
            # transformers would go on with random numbers in their place.
            raise DataError(f"its weights lack {min(loading['missing_keys'])}", where=where, remedy=remedy)
        policy = cls(module, tokenizer, head=head)
        policy._check_tokenizer(where)
        policy._check_head(where)
        return policy

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._projection.weight.device

    @property
    def stop_ids(self) -> frozenset[int]:
        """Every token that ends a completion: those of the generation settings, the configuration and the tokenizer."""
        sources = (self.module.generation_config, self.config, self.tokenizer)
        found = [getattr(source, "eos_token_id", None) for source in sources]
        return frozenset(token for ids in found if ids is not None for token in (ids if isinstance(ids, list) else [ids]))

    @property
    def pad_id(self) -> int:
        """A token to fill with; it is masked wherever it stands."""
        return int(self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else min(self.stop_ids, default=0))

    @cached_property
    def flops(self) -> ModelFlops:
        """What its passes cost: 2 per weight that a token meets, 4 per attention channel and pair (scores, weighted values)."""
        heads = self.config.num_attention_heads
        head_size = getattr(self.config, "head_dim", None) or self.config.hidden_size // heads
        return ModelFlops(
            body_per_token=2.0 * self._weights_per_token(),
            attention_per_pair=4.0 * self.config.num_hidden_layers * heads * head_size,
            head_per_token=2.0 * self._projection.weight.numel(),
        )

    def encode(self, text: str, *, where: str) -> tuple[int, ...]:
        """The ids of `text` as it stands, without special tokens added.

        Raises:
            DataError: it holds what the tokenizer has no token for, or nothing; `where` says which text it is.
        """
        return self._encode(text, where=where, add_special_tokens=False)

    def encode_prompt(self, text: str, *, where: str) -> tuple[int, ...]:
        """The ids of `text` as a prompt, with the special tokens that the tokenizer adds by itself, such as one that begins it.

        Raises:
            DataError: as `encode`.
        """
        return self._encode(text, where=where, add_special_tokens=True)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens, as graders read it."""
        if self.tokenizer.clean_up_tokenization_spaces:
            return cast("str", self.tokenizer.decode(list(ids), skip_special_tokens=True))
        # The same without a check in Python of every id, which takes twenty times as long.
        return self.tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=True)

    def _encode(self, text: str, *, where: str, add_special_tokens: bool) -> tuple[int, ...]:
        try:
            ids = tuple(self.tokenizer.encode(text, add_special_tokens=add_special_tokens))
        except Exception as error:  # The tokenizers library raises nothing more special.
            raise DataError(f"the model's tokenizer cannot encode {text!r} ({error})", where=where, remedy="use its alphabet") from error
        if not ids:
            raise DataError(f"{text!r} has no tokens", where=where, remedy="write something that the model's tokenizer knows")
        return ids

    def hidden(self, input_ids: Tensor, **arguments: Any) -> Tensor:
        """(N, T, H) last hidden states of the body; `arguments` are those of the Hugging Face module (mask, positions, cache)."""
        return last_hidden(self.module.base_model, input_ids, **arguments)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., V) fp32 logits of (..., H) hidden states, before any temperature."""
        weight, bias = self._projection.weight, self._projection.bias
        # Doubles stay doubles: what is checked in them must not be rounded here.
        precise = torch.promote_types(weight.dtype, torch.float32)
        if self.head == "fp32":
            cached = None if torch.is_grad_enabled() else self._cached_weight
            weight = weight.to(precise) if cached is None else cached
            logits = functional.linear(hidden.to(precise), weight, None if bias is None else bias.to(precise))
        else:
            logits = functional.linear(hidden, weight, bias).to(precise)
        scale = getattr(self.config, "logit_scale", None) or 1.0 / (getattr(self.config, "logits_scaling", None) or 1.0)
        if scale != 1.0:
            logits = logits * scale
        cap = getattr(self.config, "final_logit_softcapping", None)
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def cache_head(self) -> None:
        """Keep an fp32 copy of the head's weight for passes without gradient; every later `load_tensors` renews it."""
        self._cached_weight = self._projection.weight.detach().float()

    def tensors(self) -> dict[str, Tensor]:
        """Every weight by name, tied ones once; views, not copies."""
        return {name: parameter.detach() for name, parameter in self.module.named_parameters()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy new weights into place.

        Raises:
            DataError: names or shapes differ from those of this policy.
        """
        own = self.tensors()
        here, there = ({name: tuple(tensor.shape) for name, tensor in side.items()} for side in (own, tensors))
        if here != there:
            name = min(name for name in here | there if here.get(name) != there.get(name))
            raise DataError(
                f"the weights do not fit the model: {name} is {here.get(name, 'absent')} here and {there.get(name, 'absent')} there",
                remedy="use a checkpoint of the same architecture",
            )
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
        if self._cached_weight is not None:
            self.cache_head()

    def copied(self) -> Self:
        """The same policy with weights of its own."""
        copied = type(self)(deepcopy(self.module), self.tokenizer, head=self.head)
        if self._cached_weight is not None:
            copied.cache_head()
        return copied

    def save(self, folder: Path, *, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Write a folder that AutoModelForCausalLM and AutoTokenizer load by itself, with `tensors` in place of the weights.

        Raises:
            OSError: it cannot be written.
            SafetensorError: the weights cannot be written.
        """
        self.module.save_pretrained(folder, state_dict=None if tensors is None else dict(tensors))
        try:
            self.tokenizer.save_pretrained(folder)
        except OSError:
            raise
        except Exception as error:  # The tokenizers library raises nothing more special where a disk is full.
            raise OSError(str(error)) from error

    def _weights_per_token(self) -> float:
        """Weights of the body's matrices that a token is multiplied with: of a layer's experts, one tensor, those it is sent to."""
        body = self.module.base_model
        looked_up = {id(module.weight) for module in body.modules() if isinstance(module, torch.nn.Embedding)}
        num_weights = 0.0
        for name, parameter in body.named_parameters():
            if parameter.ndim == 2 and id(parameter) not in looked_up and not name.endswith("bias"):
                num_weights += parameter.numel()
            elif parameter.ndim == 3:
                num_weights += parameter.numel() * getattr(self.config, "num_experts_per_tok", len(parameter)) / len(parameter)
        return num_weights

    def _check_tokenizer(self, where: str) -> None:
        """Refuse a tokenizer that does not fit the weights, or that leaves completions without an end."""
        if not isinstance(self.tokenizer, PreTrainedTokenizerFast):
            raise DataError("its tokenizer is no fast tokenizer", where=where, remedy="convert it to a tokenizer.json")
        num_tokens, num_rows = len(self.tokenizer), int(self.config.vocab_size)
        if num_tokens > num_rows:
            raise DataError(f"its tokenizer has {num_tokens} tokens and its model {num_rows}", where=where, remedy="use the model's own")
        if not self.stop_ids:
            raise DataError("nothing ends its completions", where=where, remedy="name an eos_token_id in its generation_config.json")

    def _check_head(self, where: str) -> None:
        """Refuse a model whose own logits are not those computed here: some heads scale, cap or mix in ways of their own."""
        ids = torch.arange(min(4, int(self.config.vocab_size)), device=self.device)[None]
        with torch.no_grad():
            expected = self.module(input_ids=ids).logits.float()
            error = (self.logits(self.hidden(ids)) - expected).abs().max().item()
        tolerance = 1e-4 if self._projection.weight.dtype == torch.float32 else 5e-2
        if error > tolerance * max(1.0, expected.abs().max().item()):
            raise DataError(f"its head is no linear map of its hidden states (logits differ by {error:.2g})", where=where)


def last_hidden(body: torch.nn.Module, input_ids: Tensor, **arguments: Any) -> Tensor:
    """(N, T, H) last hidden states of a Hugging Face body; a `cache` among the `arguments` gets there whatever the library calls it."""
    if "cache" in arguments and "cache" not in signature(body.forward).parameters:
        # The name changed within transformers 5, and one that is unknown is passed over in silence.
        arguments["past_key_values"] = arguments.pop("cache")
    return cast("Tensor", body(input_ids=input_ids, **arguments).last_hidden_state)


def recompute_activations(module: PreTrainedModel) -> None:
    """From now on layers keep only their inputs for the backward pass, and compute the rest again."""
    # The name changed within transformers 5; the old one warns.
    enable = getattr(module, "activation_checkpointing_enable", None) or module.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    for layer in module.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            # The library asks for training mode; only of the layer itself, so that no dropout wakes up within.
            layer.training = True


def check_memory(
    config: Any,
    *,
    where: str,
    trust_remote_code: bool = False,
    bytes_per_parameter: int = BYTES_PER_TRAINED_PARAMETER,
    free_bytes: int | None = None,
) -> None:
    """Refuse a model that does not fit into the memory that is free: by default one that is trained.

    Raises:
        ScalerlError: so many bytes for each parameter are not free.
    """
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    check_room(
        num_parameters * bytes_per_parameter,
        what=f"{'training' if bytes_per_parameter == BYTES_PER_TRAINED_PARAMETER else 'loading'} its {num_parameters:,} parameters",
        where=where,
        remedy="choose a smaller model or a larger machine",
        free_bytes=free_bytes,
    )
