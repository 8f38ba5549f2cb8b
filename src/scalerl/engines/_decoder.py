"""The forward pass of Llama, Mistral, Qwen2 and Qwen3, written for sampling, on the weights of the Hugging Face module.

    x = embed(ids)
    for each layer
        q, k, v = split(qkv(attention_norm(x)));  q, k = rotate(head_norm(q, k))      head norms and biases where there are any
        x += output(attend(q, k, v))                                                  `_attention.py`
        gate, up = split(gate_up(mlp_norm(x)))
        x += down(act(gate) * up)
    hidden = final_norm(x)

The tokens of a pass are packed, prompts and single tokens alike, so that no matmul sees padding. What are several matrices
in Hugging Face's module and one here (q, k and v; gate and up) lie in one place that both look at: weights that are copied
into the module are in use here at once, and none is held twice.

Rotary angles come from the module's own table, so that every scaling of them is right by construction; the kinds that change
with the length of the sequence are not for this file. `Decoder.runs` decides by the file that a module's class was written
in: those of `_TOLD_HERE` were read, and every other decoder runs through `_module.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm

from scalerl.engines._attention import RowKeys
from scalerl.engines._blocks import Block, Ints
from scalerl.models._policy import Policy

_TOLD_HERE = {f"transformers.models.{name}.modeling_{name}" for name in ("llama", "mistral", "qwen2", "qwen3")}
_FIXED_ROPE = {"default", "linear", "llama3", "yarn"}


class Decoder:
    """The body of a policy with the keys of `num_rows` rows."""

    def __init__(self, policy: Policy, *, num_rows: int) -> None:
        self.use(policy)
        self._turns = _turns(self._rotary, 0, like=self._embed.weight.detach())
        layer = self._layers[0]
        self._keys = RowKeys(
            layers=len(self._layers),
            rows=num_rows,
            heads=layer.num_heads,
            kv_heads=layer.num_kv_heads,
            head_size=self._turns.shape[-1],
            like=self._embed.weight.detach(),
        )

    @staticmethod
    def runs(policy: Policy) -> bool:
        """Whether this file tells the forward pass of `policy`."""
        body = _body(policy)
        if type(body).__module__ not in _TOLD_HERE or body.rotary_emb.rope_type not in _FIXED_ROPE:
            return False
        # Adapters and quantised weights put modules of other kinds in these places.
        return all(type(module) is nn.Linear for layer in body.layers for name, module in layer.named_modules() if name.endswith("_proj"))

    def use(self, policy: Policy) -> None:
        """Go on with the weights of `policy`, which has the same architecture."""
        body = _body(policy)
        self._embed, self._norm, self._rotary = body.embed_tokens, body.norm, body.rotary_emb
        self._layers = [_Layer(layer) for layer in body.layers]

    def forward(self, blocks: Sequence[Block]) -> tuple[Tensor, int]:
        """(T, H) hidden states of all tokens of `blocks`, and the (token, key) pairs that were computed for them."""
        now = self._keys.prepare(blocks)
        cosine, sine = self._turns_of(now.positions, longest=max(block.longest for block in blocks))
        hidden = self._embed(now.ids)
        for index, layer in enumerate(self._layers):
            queries, keys, values = layer.project(hidden, cosine, sine)
            seen = self._keys.attend(index, queries, keys, values, now=now, scale=layer.scale)
            hidden = layer.finish(hidden, seen)
        return _normed(hidden, self._norm), now.num_pairs

    def move(self, *, source: Ints, target: Ints, length: int) -> None:
        """Copy the first `length` cached tokens of the `source` rows over the `target` rows."""
        self._keys.move(source=source, target=target, length=length)

    def _turns_of(self, positions: Tensor, *, longest: int) -> tuple[Tensor, Tensor]:
        """(T, 1, D) cosines and signed sines of the angles at (T,) `positions`."""
        if longest > self._turns.shape[1]:
            self._turns = _turns(self._rotary, 2 * longest, like=self._embed.weight.detach())
        cosine, sine = self._turns[:, positions]
        return cosine, sine


class _Layer:
    """One layer: what comes before attention and what comes after it."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._attention_norm, self._mlp_norm = layer.input_layernorm, layer.post_attention_layernorm
        self._qkv = _joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self._gate_up = _joined(mlp.gate_proj, mlp.up_proj)
        self._output, self._down, self._act = _joined(attention.o_proj), _joined(mlp.down_proj), mlp.act_fn
        self._head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None
        self._head_size: int = attention.head_dim
        self.num_heads = attention.q_proj.out_features // self._head_size
        self.num_kv_heads = attention.k_proj.out_features // self._head_size
        self.scale: float = attention.scaling

    def project(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(T, A, D) queries, (T, K, D) keys and (T, K, D) values of (T, H) hidden states."""
        heads = linear(_normed(hidden, self._attention_norm), *self._qkv).view(len(hidden), -1, self._head_size)
        turned, values = heads.split((self.num_heads + self.num_kv_heads, self.num_kv_heads), dim=1)
        if self._head_norms is not None:
            turned = self._normed_heads(turned, *self._head_norms)
        queries, keys = _rotated(turned, cosine, sine).split((self.num_heads, self.num_kv_heads), dim=1)
        return queries, keys, values

    def finish(self, hidden: Tensor, seen: Tensor) -> Tensor:
        """(T, H) hidden states after the layer, from those before it and what (T, A * D) attention has `seen`."""
        hidden += linear(seen, *self._output)
        gate, up = linear(_normed(hidden, self._mlp_norm), *self._gate_up).chunk(2, dim=-1)
        hidden += linear(self._act(gate).mul_(up), *self._down)
        return hidden

    def _normed_heads(self, heads: Tensor, query_norm: Any, key_norm: Any) -> Tensor:
        """(T, A + K, D) queries and keys, each normalised by itself, in one go."""
        weight = torch.cat((query_norm.weight.expand(self.num_heads, -1), key_norm.weight.expand(self.num_kv_heads, -1)))
        return weight * _scaled(heads, query_norm.variance_epsilon)


def _normed(hidden: Tensor, norm: Any) -> Tensor:
    """The module's RMSNorm, to the last bit."""
    normed: Tensor = norm.weight * _scaled(hidden, norm.variance_epsilon)
    return normed


def _scaled(hidden: Tensor, epsilon: float) -> Tensor:
    """Every vector of unit mean square, computed in fp32 whatever the weights are, as Hugging Face does."""
    return rms_norm(hidden.float(), hidden.shape[-1:], eps=epsilon).to(hidden.dtype)


def _rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """(T, heads, D) with the first half of the channels turned against the second; `sine` carries the sign of either."""
    return (heads * cosine).addcmul_(heads.roll(heads.shape[-1] // 2, dims=-1), sine)


def _turns(rotary: Any, length: int, *, like: Tensor) -> Tensor:
    """(2, length, 1, D) cosines and sines of all positions below `length`, the sines negative in the first half."""
    cosine, sine = rotary(like, torch.arange(length, device=like.device)[None])
    half = sine.shape[-1] // 2
    return torch.stack((cosine[0], torch.cat((-sine[0, :, :half], sine[0, :, half:]), dim=-1)))[:, :, None]


def _joined(*projections: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of several projections of one input as one; the projections look at parts of it from now on."""
    biases = [projection.bias for projection in projections if projection.bias is not None]
    return _one_tensor([projection.weight for projection in projections]), _one_tensor(biases) if biases else None


def _one_tensor(parameters: Sequence[Tensor]) -> Tensor:
    """The parameters one after the other in one place: where they lie, if that is so already, and moved there otherwise."""
    first, lengths = parameters[0].detach(), [len(parameter) for parameter in parameters]
    ends = [parameter.storage_offset() + parameter.numel() for parameter in parameters]
    is_one = len({parameter.untyped_storage().data_ptr() for parameter in parameters}) == 1
    if is_one and [parameter.storage_offset() for parameter in parameters[1:]] == ends[:-1]:
        return first.as_strided((sum(lengths), *first.shape[1:]), first.stride())
    joined = torch.cat([parameter.detach() for parameter in parameters])
    for parameter, part in zip(parameters, joined.split(lengths), strict=True):
        parameter.data = part
    return joined


def _body(policy: Policy) -> Any:
    """The module without its head, whose parts no type of transformers declares."""
    return policy.module.base_model
