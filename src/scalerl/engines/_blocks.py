"""What one forward pass computes: blocks of tokens, each as wide as its rows have new tokens, so that none is padding.

    Whole    sequences from their first token on; the rows that go on from a sequence share its keys
    More     tokens that follow what rows hold already

A pass takes several blocks at once: prompts that begin beside rows that go on, or a prompt beside the continuations that
attend to it. Their tokens lie one after the other, block by block and row by row.

Shapes: N sequences or rows, W tokens of each, R rows, T tokens of all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalerl.accounting.flops import causal_pairs

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """N sequences of W tokens, whose keys R rows take: a prompt is computed once, however many completions go on from it."""

    ids: Ints
    """(N, W)"""
    rows: Ints
    """(R,) where keys go."""
    sequence_of_row: Ints
    """(R,) which of the N sequences each row takes."""

    @property
    def positions(self) -> Ints:
        """(N, W)"""
        return np.broadcast_to(np.arange(self.ids.shape[1]), self.ids.shape)

    @property
    def longest(self) -> int:
        """Tokens that any row holds afterwards."""
        return int(self.ids.shape[1])

    @property
    def stored(self) -> tuple[Ints, Ints]:
        """(R * W,) which token of the block, and (R * W,) which row takes its key."""
        width = self.ids.shape[1]
        return (self.sequence_of_row[:, None] * width + np.arange(width)).ravel(), self.rows.repeat(width)

    @property
    def num_stored(self) -> int:
        """Keys that rows take, shared ones as often as they are taken."""
        return len(self.rows) * int(self.ids.shape[1])

    @property
    def num_pairs(self) -> int:
        """(token, key) pairs under causal attention."""
        num, width = self.ids.shape
        return int(num * width * (width + 1) // 2)


@dataclass(frozen=True, slots=True, eq=False)
class More:
    """W tokens more for each of N rows, which attend to all that the row holds."""

    ids: Ints
    """(N, W)"""
    rows: slice | Ints
    """The N rows; a slice is read where it lies."""
    starts: Ints
    """(N,) tokens that the row holds already."""

    @property
    def positions(self) -> Ints:
        """(N, W)"""
        return self.starts[:, None] + np.arange(self.ids.shape[1])

    @property
    def ends(self) -> Ints:
        """(N,) tokens that the row holds afterwards."""
        return self.starts + int(self.ids.shape[1])

    @property
    def longest(self) -> int:
        """Tokens that any row holds afterwards."""
        return int(self.ends.max())

    @property
    def row_index(self) -> Ints:
        """(N,) the rows, listed."""
        return np.arange(self.rows.start, self.rows.stop) if isinstance(self.rows, slice) else self.rows

    @property
    def stored(self) -> tuple[Ints, Ints]:
        """(N * W,) which token of the block, and (N * W,) which row takes its key."""
        return np.arange(self.ids.size), self.row_index.repeat(self.ids.shape[1])

    @property
    def num_stored(self) -> int:
        """Keys that rows take."""
        return self.ids.size

    @property
    def num_pairs(self) -> int:
        """(token, key) pairs under causal attention."""
        return int(causal_pairs(self.ends, start=self.starts).sum())


Block = Whole | More


_TOKENS_AT_ONCE = 2**11
"""Of one block or pass: enough for matmuls to be at their best, few enough for what lies between them to stay in a cache."""


def whole_blocks(sequences: Sequence[Sequence[int] | Ints], *, rows: Ints, sequence_of_row: Ints) -> tuple[list[Block], Ints]:
    """Blocks of sequences of equal length; and (N,) where the last token of each lies among those of the blocks.

    Args:
        rows: (R,) rows that take keys.
        sequence_of_row: (R,) the sequence that each takes.
    """
    blocks: list[Block] = []
    last = np.empty(len(sequences), np.int64)
    num_before = 0
    for width, chosen in _by_width(np.array([len(sequence) for sequence in sequences])):
        takes = np.isin(sequence_of_row, chosen)
        ids = np.array([sequences[index] for index in chosen], np.int64)
        blocks.append(Whole(ids, rows[takes], np.searchsorted(chosen, sequence_of_row[takes])))
        last[chosen] = num_before + width * np.arange(1, len(chosen) + 1) - 1
        num_before += ids.size
    return blocks, last


def more_blocks(ids: Ints, *, rows: Ints, starts: Ints, num_new: Ints) -> list[tuple[Ints, More]]:
    """Blocks of rows with equally many new tokens, each with which of the N rows it holds; rows without any are in none.

    Args:
        ids: (N, W) of which the first (N,) `num_new` count.
        rows: (N,)
        starts: (N,) tokens that each row holds already.
    """
    return [(chosen, More(ids[chosen, :width], rows[chosen], starts[chosen])) for width, chosen in _by_width(num_new) if width]


def passes(blocks: Sequence[Block]) -> Iterator[Sequence[Block]]:
    """The blocks in their order, as many at once as are not too many tokens."""
    first, num_tokens = 0, 0
    for index, block in enumerate(blocks):
        if first < index and num_tokens + block.ids.size > _TOKENS_AT_ONCE:
            yield blocks[first:index]
            first, num_tokens = index, 0
        num_tokens += block.ids.size
    yield blocks[first:]


def _by_width(widths: Ints) -> Iterator[tuple[int, Ints]]:
    """Each width that occurs, and where, at most so many at once as are not too many tokens."""
    for width in np.unique(widths).tolist():
        where = np.flatnonzero(widths == width)
        at_once = max(1, _TOKENS_AT_ONCE // max(1, width))
        yield from ((width, where[first : first + at_once]) for first in range(0, len(where), at_once))
