"""Keys and values of all rows in flight, and attention to what is alive of them.

Rows lie side by side, each at its own length. A key beyond that length is masked, but reading it costs as much as any
other: rows are read in pieces, each to the length of its longest row, which is at most `_LARGEST_PIECE` times that of the
first row of the next. Rows that stand in order of their length make good pieces.

Grouped heads are not repeated: the queries that share a key-value head are the rows of one small matrix.

Shapes: T tokens of a pass, N rows of a piece or sequences of a block, W tokens of each, L its longest context,
A attention heads, K key-value heads, D channels of a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scalerl.engines._blocks import Block, Ints, Whole

_LARGEST_PIECE = 1.5
"""Smaller pieces read less in vain and call more kernels."""


@dataclass(frozen=True, slots=True, eq=False)
class _Fresh:
    """Sequences that attend to themselves."""

    tokens: slice
    """Of the pass."""
    num_sequences: int
    num_pairs: int


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Rows that attend to what they hold."""

    tokens: slice
    """Of the pass."""
    rows: slice | Tensor
    num_rows: int
    """N"""
    bias: Tensor
    """(N * K, W * A / K, L) 0 where a query may look, -inf elsewhere."""
    num_pairs: int


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """The tokens of some blocks: where they stand, where their keys go, what they attend to. Every layer goes by it."""

    ids: Tensor
    """(T,)"""
    positions: Tensor
    """(T,)"""
    stored: Tensor | None
    """(E,) the tokens whose keys are stored, each as often as rows take it; None where it is every token once, in order."""
    places: Tensor
    """(2 * E * K,) where their keys go, and their values."""
    parts: Sequence[_Fresh | _Piece]

    @property
    def num_pairs(self) -> int:
        """(token, key) pairs that are computed, masked ones included."""
        return sum(part.num_pairs for part in self.parts)


class RowKeys:
    """Keys and values of every layer in one tensor, (layers, 2, rows, K, positions, D), grown to the longest context."""

    def __init__(self, *, layers: int, rows: int, heads: int, kv_heads: int, head_size: int, like: Tensor) -> None:
        self._queries_per_key = heads // kv_heads
        self._kv_heads = kv_heads
        self._head_size = head_size
        self._store = like.new_zeros(layers, 2, rows, kv_heads, 0, head_size)
        self._visible, self._hidden = like.new_zeros(()), like.new_full((), float("-inf"))
        self._softmax_dtype = torch.promote_types(like.dtype, torch.float32)

    def prepare(self, blocks: Sequence[Block]) -> Pass:
        """Make room for the tokens of `blocks`, and say where they go and what they attend to."""
        self._reserve(max(block.longest for block in blocks))
        firsts = np.cumsum([0, *(block.ids.size for block in blocks[:-1])]).tolist()
        positions = np.concatenate([block.positions.ravel() for block in blocks])
        stored, rows = (np.concatenate(of_blocks) for of_blocks in zip(*(block.stored for block in blocks), strict=True))
        stored += np.repeat(firsts, [block.num_stored for block in blocks])
        _, _, num_rows, kv_heads, capacity, _ = self._store.shape
        keys = ((rows[:, None] * kv_heads + np.arange(kv_heads)) * capacity + positions[stored][:, None]).ravel()
        on_device = self._to_device(positions)
        return Pass(
            ids=self._to_device(np.concatenate([block.ids.ravel() for block in blocks])),
            positions=on_device,
            stored=self._to_device(stored) if len(stored) > len(positions) else None,
            places=self._to_device(np.concatenate((keys, keys + num_rows * kv_heads * capacity))),
            parts=[part for first, block in zip(firsts, blocks, strict=True) for part in self._parts(block, on_device, first=first)],
        )

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, *, now: Pass, scale: float) -> Tensor:
        """(T, A * D) what (T, A, D) `queries` see, after the (T, K, D) `keys` and `values` of their tokens have been stored."""
        store = self._store[layer]
        new = torch.stack((keys, values))
        if now.stored is not None:
            new = new[:, now.stored]
        store.view(-1, self._head_size).index_copy_(0, now.places, new.view(-1, self._head_size))
        seen = [
            self._of_rows(part, queries[part.tokens], store, scale=scale)
            if isinstance(part, _Piece)
            else _of_selves(part, queries[part.tokens], keys[part.tokens], values[part.tokens], scale=scale)
            for part in now.parts
        ]
        return seen[0] if len(seen) == 1 else torch.cat(seen)

    def move(self, *, source: Ints, target: Ints, length: int) -> None:
        """Copy the first `length` positions of the `source` rows over the `target` rows."""
        held = self._store[..., :length, :]
        held.index_copy_(2, self._to_device(target), held.index_select(2, self._to_device(source)))

    def _parts(self, block: Block, positions: Tensor, *, first: int) -> Iterator[_Fresh | _Piece]:
        """The attention of `block`, whose tokens begin at `first` in the pass."""
        num, width = block.ids.shape
        if isinstance(block, Whole):
            yield _Fresh(slice(first, first + num * width), num, num * width * width)
            return
        for begin, end, length in _pieces(block.ends):
            tokens = slice(first + begin * width, first + end * width)
            if isinstance(block.rows, slice):
                rows: slice | Tensor = slice(block.rows.start + begin, block.rows.start + end)
            else:
                rows = self._to_device(block.rows[begin:end])
            bias = self._bias(positions[tokens].view(end - begin, width), length)
            yield _Piece(tokens, rows, end - begin, bias, (end - begin) * width * length)

    def _bias(self, positions: Tensor, length: int) -> Tensor:
        """(N * K, W * A / K, L) for queries at (N, W) `positions`; one row for all queries of a key where W is 1."""
        num, width = positions.shape
        is_later = torch.arange(length, device=positions.device) > positions[:, None, :, None, None]
        bias = torch.where(is_later, self._hidden, self._visible)
        queries = 1 if width == 1 else self._queries_per_key
        return bias.expand(-1, self._kv_heads, -1, queries, -1).reshape(num * self._kv_heads, width * queries, length)

    def _of_rows(self, part: _Piece, queries: Tensor, store: Tensor, *, scale: float) -> Tensor:
        """(N * W, A * D) what (N * W, A, D) `queries` see of the N rows that they go on from."""
        keys, values = store[:, part.rows, :, : part.bias.shape[2]].flatten(1, 2).unbind()
        by_row = queries.view(part.num_rows, -1, self._kv_heads, self._queries_per_key * self._head_size)
        by_key = by_row.transpose(1, 2).reshape(len(keys), -1, self._head_size)
        scores = torch.baddbmm(part.bias, by_key, keys.transpose(1, 2), alpha=scale)
        weights = scores.softmax(-1, dtype=self._softmax_dtype).to(scores.dtype)
        seen = torch.bmm(weights, values)
        return seen.view(by_row.transpose(1, 2).shape).transpose(1, 2).reshape(len(queries), -1)

    def _reserve(self, length: int) -> None:
        """Make room for `length` positions, doubling so that a long completion is copied a few times only."""
        old = self._store
        capacity = old.shape[4]
        if length > capacity:
            # Zeros, not garbage: what a mask hides is still multiplied, and 0 * NaN is NaN.
            self._store = old.new_zeros(*old.shape[:4], max(length, 2 * capacity), old.shape[5])
            self._store[:, :, :, :, :capacity] = old

    def _to_device(self, array: Ints) -> Tensor:
        return torch.from_numpy(array).to(self._store.device)


def _of_selves(part: _Fresh, queries: Tensor, keys: Tensor, values: Tensor, *, scale: float) -> Tensor:
    """(N * W, A * D) what the (N * W, A, D) queries of N sequences see of their own sequence."""
    queries, keys, values = (tensor.view(part.num_sequences, -1, *tensor.shape[1:]).transpose(1, 2) for tensor in (queries, keys, values))
    grouped = queries.shape[1] != keys.shape[1]
    seen = scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale, enable_gqa=grouped)
    return seen.transpose(1, 2).flatten(2).flatten(0, 1)


def _pieces(lengths: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """(first, end, longest) of runs of rows with (N,) `lengths`."""
    longest_from_here = np.maximum.accumulate(lengths[::-1])[::-1]
    first = 0
    while first < len(lengths):
        longest = int(longest_from_here[first])
        end = int(np.count_nonzero(longest_from_here * _LARGEST_PIECE > longest))
        yield first, end, longest
        first = end
