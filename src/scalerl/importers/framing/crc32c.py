"""CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of many messages at once, in NumPy.

The checksum is linear over GF(2): that of a message is the exclusive or of what each of its bytes contributes, which depends
on the byte and on how many follow. So messages of one length are summed column by column, one table look-up a byte, and
a long message is cut into pieces that are summed side by side. 7 ns a byte; no package has to be compiled for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Checksums = NDArray[np.uint32]

_PIECE = 256
"""Bytes of a long message that are summed as one; the tables of a piece fit into the second-level cache."""
_START = np.uint32(0xFFFFFFFF)
_MASK_DELTA = np.uint32(0xA282EAD8)


def _tables() -> Checksums:
    """(_PIECE, 256): in row k what a byte contributes that k others follow."""
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(0x82F63B78), row >> 1)
    rows = [row]
    while len(rows) < _PIECE:
        rows.append(rows[0][rows[-1] & 255] ^ (rows[-1] >> 8))
    return np.stack(rows)


_TABLES = _tables()
_PUSHED_BY_A_PIECE = _TABLES[:-5:-1]
"""(4, 256): what is left of each byte of a sum, the lowest first, when a piece follows: it counts as if it stood in the piece's start."""


def masked_crc32c(columns: Bytes) -> Checksums:
    """(n,) checksums of messages given as `columns`, (length, n), as TFRecord stores them: rotated, and a constant added."""
    crc = crc32c(columns)
    return np.asarray(((crc >> 15) | (crc << 17)) + _MASK_DELTA, np.uint32)


def crc32c(columns: Bytes) -> Checksums:
    """(n,) checksums of messages of one length, given as `columns`, (length, n): the first bytes of all, the second ..."""
    length, num_messages = columns.shape
    # The sum starts with all bits set, which is as if the first four bytes were inverted; what they lack stays as it is.
    columns = np.concatenate([~columns[:4], columns[4:]])
    untouched = _START >> np.uint32(8 * length) if length < 4 else np.uint32(0)
    loose = length % _PIECE
    sums, pushed = _contributions(columns[:loose])[None], _PUSHED_BY_A_PIECE
    if length >= _PIECE:
        pieces = columns[loose:].reshape(-1, _PIECE, num_messages).swapaxes(0, 1).reshape(_PIECE, -1)
        sums = np.concatenate([sums, _contributions(pieces).reshape(-1, num_messages)])
    while len(sums) > 1:
        if len(sums) % 2:
            sums = np.concatenate([np.zeros_like(sums[:1]), sums])
        sums = _looked_up(pushed, sums[::2]) ^ sums[1::2]
        pushed = _looked_up(pushed, pushed)
    return np.asarray(~(sums[0] ^ untouched), np.uint32)


def _contributions(columns: Bytes) -> Checksums:
    """(n,) sum of what the bytes of `columns`, (at most _PIECE, n), contribute."""
    total = np.zeros(columns.shape[1], np.uint32)
    for num_following, column in enumerate(columns[::-1]):
        total ^= _TABLES[num_following].take(column)
    return total


def _looked_up(pushed: Checksums, sums: Checksums) -> Checksums:
    """What `sums` become, each of their bytes by its row of `pushed`, (4, 256)."""
    total = np.asarray(pushed[0].take(sums & 255), np.uint32)
    for place in (1, 2, 3):
        total ^= pushed[place].take((sums >> np.uint32(8 * place)) & 255)
    return total
