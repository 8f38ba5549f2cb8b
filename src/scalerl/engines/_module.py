"""Forward passes of the unchanged Hugging Face module: for every decoder whose layers `_decoder.py` does not tell.

The module gets a `Cache` with a place per row and position. Whether its next pass computes whole sequences or goes on with
rows is said beforehand; the layers then call `update`. What stands beyond a row's length is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from scalerl.engines._blocks import Block, Ints, Whole
from scalerl.models._policy import Policy


class ModuleRows:
    """The body of a policy with the keys of `num_rows` rows, one pass of the module for each block."""

    def __init__(self, policy: Policy, *, num_rows: int) -> None:
        self._cache = _RowCache(num_rows)
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Go on with the weights of `policy`, which has the same architecture."""
        self._policy = policy

    def forward(self, blocks: Sequence[Block]) -> tuple[Tensor, int]:
        """(T, H) hidden states of all tokens of `blocks`, and the (token, key) pairs that were computed for them."""
        hidden = torch.cat([self._block(block).flatten(0, 1) for block in blocks])
        return hidden, sum(block.ids.size * block.longest for block in blocks)

    def move(self, *, source: Ints, target: Ints, length: int) -> None:
        """Copy the first `length` cached tokens of the `source` rows over the `target` rows."""
        self._cache.move(self._to_device(source), self._to_device(target), length=length)

    def _block(self, block: Block) -> Tensor:
        """(N, W, H) hidden states; every token attends to the positions up to its own, which are cached or computed now."""
        ids, positions = self._to_device(block.ids), self._to_device(block.positions.copy())
        if isinstance(block, Whole):
            self._cache.expect(_Start(self._to_device(block.rows), self._to_device(block.sequence_of_row)), length=block.longest)
        else:
            rows = block.rows if isinstance(block.rows, slice) else self._to_device(block.rows)
            self._cache.expect(_GoOn(rows, self._to_device(block.row_index[:, None]), positions), length=block.longest)
        keys = torch.arange(block.longest, device=ids.device)
        # Added to the scores: the one form of mask that all attention implementations of transformers take.
        mask = torch.zeros(len(ids), 1, ids.shape[1], block.longest, dtype=self._policy.module.dtype, device=ids.device)
        mask.masked_fill_(keys > positions[:, None, :, None], torch.finfo(mask.dtype).min)
        return self._policy.hidden(ids, attention_mask=mask, position_ids=positions, cache=self._cache, use_cache=True)

    def _to_device(self, array: Ints) -> Tensor:
        return torch.from_numpy(array).to(self._policy.device)


@dataclass(frozen=True, slots=True)
class _Start:
    rows: Tensor
    """(R,) where keys go."""
    sequences: Tensor
    """(R,) which of the pass's sequences each row takes."""


@dataclass(frozen=True, slots=True)
class _GoOn:
    rows: slice | Tensor
    """The N rows that the pass works on; a slice is read without a copy."""
    row_index: Tensor
    """(N, 1) the same rows, to write to."""
    positions: Tensor
    """(N, W)"""


class _RowCache(Cache):
    """Keys and values by layer, (rows, key-value heads, positions, head size), grown to the longest context."""

    def __init__(self, num_rows: int) -> None:
        super().__init__(layers=[])
        self._num_rows = num_rows
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._length = 0
        self._pass: _Start | _GoOn

    def expect(self, next_pass: _Start | _GoOn, *, length: int) -> None:
        """Say what the next pass is, and make room for contexts of `length` tokens."""
        self._pass, self._length = next_pass, length
        if length <= self._capacity:
            return
        # Doubled, so that a long completion is copied a few times only.
        old, self._capacity = self._capacity, max(length, 2 * self._capacity)
        for stores in (self._keys, self._values):
            for layer, store in enumerate(stores):
                stores[layer] = self._empty(store)
                stores[layer][:, :, :old] = store

    def move(self, source: Tensor, target: Tensor, *, length: int) -> None:
        """Copy the first `length` positions of the `source` rows over the `target` rows."""
        for store in (*self._keys, *self._values):
            store[target, :, :length] = store[source, :, :length]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        """Keep what one layer computed, (N, heads, W, size), and return what its queries attend to."""
        if layer_idx == len(self._keys):
            self._keys.append(self._empty(key_states))
            self._values.append(self._empty(value_states))
        keys, values, now = self._keys[layer_idx], self._values[layer_idx], self._pass
        if isinstance(now, _Start):
            width = key_states.shape[2]
            keys[now.rows, :, :width] = key_states[now.sequences]
            values[now.rows, :, :width] = value_states[now.sequences]
            return key_states, value_states
        keys[now.row_index, :, now.positions] = key_states.transpose(1, 2)
        values[now.row_index, :, now.positions] = value_states.transpose(1, 2)
        return keys[now.rows, :, : self._length], values[now.rows, :, : self._length]

    def _empty(self, like: Tensor) -> Tensor:
        # Zeros, not garbage: what a mask hides is still multiplied, and 0 * NaN is NaN.
        return like.new_zeros(self._num_rows, like.shape[1], self._capacity, like.shape[3])
