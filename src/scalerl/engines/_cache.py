"""The keys and values of all rows in flight, as the Hugging Face modules see them: a `Cache` with a place per row and position.

    prefill   whole sequences attend to themselves; their keys are copied to one or more rows
    extend    some rows get a few tokens more, which attend to all that the row holds

Which of the two the next forward pass is, is said beforehand; the modules then call `update` once per layer. Positions
are explicit: rows of any length lie side by side, and what stands beyond a row's length is never attended to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache


@dataclass(frozen=True, slots=True)
class _Prefill:
    rows: Tensor
    """(R,) where the keys go."""
    sequences: Tensor
    """(R,) which of the pass's sequences each row takes."""


@dataclass(frozen=True, slots=True)
class _Extend:
    rows: slice | Tensor
    """The N rows that the pass works on; a slice is read without a copy."""
    row_index: Tensor
    """(N, 1) the same rows, to write to."""
    positions: Tensor
    """(N, W)"""
    length: int
    """Longest context of these rows, the new tokens included."""


class RowCache(Cache):
    """Keys and values in one tensor each, (layers, rows, key-value heads, positions, head size), grown to the longest context."""

    def __init__(self, num_rows: int, *, device: torch.device) -> None:
        super().__init__(layers=[])
        self._num_rows = num_rows
        self._device = device
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._pass: _Prefill | _Extend

    def prefill(self, rows: Tensor, *, sequences: Tensor, length: int) -> None:
        """The next pass computes whole sequences of at most `length` tokens; `rows[i]` gets the keys of `sequences[i]`."""
        self._reserve(length)
        self._pass = _Prefill(rows, sequences)

    def extend(self, rows: slice | Tensor, *, row_index: Tensor, positions: Tensor, length: int) -> None:
        """The next pass appends tokens at (N, W) `positions` of the N `rows`, whose context is then at most `length`."""
        self._reserve(length)
        self._pass = _Extend(rows, row_index, positions, length)

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
        if isinstance(now, _Prefill):
            width = key_states.shape[2]
            keys[now.rows, :, :width] = key_states[now.sequences]
            values[now.rows, :, :width] = value_states[now.sequences]
            return key_states, value_states
        keys[now.row_index, :, now.positions] = key_states.transpose(1, 2)
        values[now.row_index, :, now.positions] = value_states.transpose(1, 2)
        return keys[now.rows, :, : now.length], values[now.rows, :, : now.length]

    def _empty(self, like: Tensor) -> Tensor:
        # Zeros, not garbage: what a mask hides is still multiplied, and 0 * NaN is NaN.
        return like.new_zeros(self._num_rows, like.shape[1], self._capacity, like.shape[3])

    def _reserve(self, length: int) -> None:
        """Make room for `length` positions, doubling so that a long completion is copied a few times only."""
        if length <= self._capacity:
            return
        old, self._capacity = self._capacity, max(length, 2 * self._capacity)
        for stores in (self._keys, self._values):
            for layer, store in enumerate(stores):
                stores[layer] = self._empty(store)
                stores[layer][:, :, :old] = store
