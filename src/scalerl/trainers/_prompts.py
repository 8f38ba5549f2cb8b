"""Prompts that several completions go on from, computed once: exact, as a completion depends on its prompt through these alone.

    keys and values of every layer, which its tokens attend to, and the state at the last token, which predicts its first one

The graph of the prompts is cut there. Completions begin at copies, leave their gradients at them micro-batch by
micro-batch, and `backward` then takes the sums through the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Cache, PretrainedConfig

from scalerl.trainers._rows import MicroBatch, Row, Work, padded

Body = Callable[..., Tensor]
"""(N, L, H) last hidden states of (N, L) ids; further arguments are those of the Hugging Face module."""


def can_share(config: PretrainedConfig) -> bool:
    """Whether the keys of all positions are all that a body's tokens know of what came before: full attention, rotary positions."""
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    is_rotary = getattr(config, "rope_parameters", None) is not None
    return is_rotary and not kinds and getattr(config, "sliding_window", None) is None


class Prompts:
    """The Q different prompts of some rows, padded to S tokens."""

    def __init__(self, body: Body, rows: Sequence[Row], *, pad_id: int, device: torch.device) -> None:
        self._body = body
        self._device = device
        prompts = {row.prompt.tobytes(): row.prompt for row in rows}
        self._places = {prompt: place for place, prompt in enumerate(prompts)}
        lengths = np.array([prompt.size for prompt in prompts.values()])
        self.width = int(lengths.max())
        """S."""
        self.work = Work.of_whole(lengths, width=self.width, num_logits=0)
        self._cache = _PromptCache()
        ids = padded(list(prompts.values()), width=self.width, fill=pad_id)
        hidden = body(self._tensor(ids), cache=self._cache, use_cache=True)
        self._last = _Joint.at(hidden[torch.arange(len(prompts), device=device), self._tensor(lengths - 1)])

    def places(self, rows: Sequence[Row]) -> NDArray[np.int64]:
        """(N,) which of the prompts each of the rows goes on from."""
        return np.array([self._places[row.prompt.tobytes()] for row in rows])

    def states(self, batch: MicroBatch, *, places: NDArray[np.int64]) -> Tensor:
        """(M, H) states that predict the trainable tokens of completions that go on from the prompts at (N,) `places`."""
        width = batch.input_ids.shape[1]
        self._cache.rows = self._tensor(places)
        hidden = self._body(
            batch.input_ids,
            attention_mask=self._mask(batch.starts, width=width),
            position_ids=self._tensor(batch.starts[:, None] + np.arange(width)),
            cache=self._cache,
            use_cache=True,
        )
        first = self._last.leaf.index_select(0, self._cache.rows)[:, None].to(hidden.dtype)
        return torch.cat((first, hidden), dim=1).flatten(0, 1).index_select(0, batch.predictors)

    def backward(self) -> None:
        """Add the gradient of the prompts, once all completions have added theirs."""
        joints = [joint for joint in (self._last, *self._cache.joints()) if joint.leaf.grad is not None]
        if joints:
            gradients = [None if joint.leaf.grad is None else joint.leaf.grad.to(joint.output.dtype) for joint in joints]
            torch.autograd.backward([joint.output for joint in joints], gradients)

    def _mask(self, starts: NDArray[np.int64], *, width: int) -> Tensor:
        """(N or 1, 1, L, S + L) what is added to scores: every token attends to its prompt and to its row up to itself."""
        starts = starts[:1] if (starts == starts[0]).all() else starts
        keys = np.arange(self.width + width)
        is_own = (keys >= self.width) & (keys <= self.width + np.arange(width)[:, None])
        is_seen = self._tensor((keys < starts[:, None])[:, None] | is_own)
        mask = torch.zeros(is_seen.shape, dtype=self._last.output.dtype, device=self._device)
        return mask.masked_fill_(~is_seen, torch.finfo(mask.dtype).min)[:, None]

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


@dataclass(frozen=True, slots=True, eq=False)
class _Joint:
    """Where a graph is cut: the end of one part and the beginning of the other, whose gradient is summed in fp32 or better."""

    output: Tensor
    leaf: Tensor

    @classmethod
    def at(cls, output: Tensor) -> Self:
        precise = output.detach().to(torch.promote_types(output.dtype, torch.float32))
        return cls(output, precise.requires_grad_(output.requires_grad))

    def before(self, own: Tensor, *, rows: Tensor) -> Tensor:
        """(N, heads, S + L, size) the (N,) `rows` of the leaf, each followed by (N, heads, L, size) `own`."""
        return torch.cat((self.leaf.index_select(0, rows).to(own.dtype), own), dim=2)


class _PromptCache(Cache):
    """What the Hugging Face modules keep of prompts and, with `rows` set, continue."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.rows: Tensor | None = None
        self._layers: dict[int, tuple[_Joint, _Joint]] = {}

    def joints(self) -> list[_Joint]:
        """Keys and values of every layer."""
        return [joint for pair in self._layers.values() for joint in pair]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        """Keep what one layer computed of the prompts, or put it before what it computed of the rows."""
        if self.rows is None:
            self._layers[layer_idx] = _Joint.at(key_states), _Joint.at(value_states)
            return key_states, value_states
        keys, values = self._layers[layer_idx]
        return keys.before(key_states, rows=self.rows), values.before(value_states, rows=self.rows)
