"""TFRecord, the framing of TensorBoard's event files: length, its checksum, data, its checksum; no blocks, no header.

    u64 length, u32 masked CRC-32C of it, the data, u32 masked CRC-32C of them             all little-endian

Event files hold millions of records of some fifty bytes, so a file is read in chunks and all records of one length are
checked at once. Behind a damaged record the walk goes on by its length, whose own checksum fits; behind a damaged length
the next place is sought where one does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from scalerl.importers.framing.crc32c import Bytes, Checksums, masked_crc32c
from scalerl.importers.framing.damage import Damage

_CHUNK_BYTES = 4 * 1024 * 1024
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_FRAME_BYTES = _HEADER.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Intact records that follow each other in a file."""

    num_places: int
    """How many records there were, the damaged ones counted."""
    groups: list[tuple[NDArray[np.int64], Bytes]]
    """Of each length: the places of its records, (n,) increasing, and their data as columns, (length, n)."""


def chunks(path: Path, damage: Damage) -> Iterator[Chunk]:
    """The intact records of the file, chunk by chunk; `damage` receives what else there was."""
    with path.open("rb") as file:
        rest, missing, num_bytes = b"", 0, path.stat().st_size
        while block := file.read(max(_CHUNK_BYTES, min(missing, num_bytes))):
            content = rest + block
            starts, stop, missing = _walk(content, damage)
            yield _checked(np.frombuffer(content, np.uint8), starts, damage)
            rest = content[stop:]
        damage.cut_short |= bool(rest)


def starts_like_a_record(head: bytes) -> bool:
    """Whether the first bytes of a file are a length and its checksum."""
    return len(head) >= _HEADER.size and bool(_fits(np.frombuffer(head, np.uint8), np.zeros(1, np.int64))[0])


def framed(data: bytes) -> bytes:
    """One record."""
    length = struct.pack("<Q", len(data))
    return length + _checksum_of(length) + data + _checksum_of(data)


def _checksum_of(data: bytes) -> bytes:
    return _CHECKSUM.pack(masked_crc32c(np.frombuffer(data, np.uint8)[:, None])[0])


def _walk(content: bytes, damage: Damage) -> tuple[NDArray[np.int64], int, int]:
    """Starts of the records that lie in `content`, (n,), where the first that does not begins, and the bytes it lacks."""
    array = np.frombuffer(content, np.uint8)
    found: list[NDArray[np.int64]] = []
    position = 0
    while True:
        starts, position, missing = _followed(content, position)
        fits = _fits(array, np.append(starts, position) if missing else starts)
        if fits.all():
            return np.concatenate([*found, starts]), position, missing
        num_intact = int(fits.argmin())
        damage.num_bad += 1
        found.append(starts[:num_intact])
        position = _sought(array, int(np.append(starts, position)[num_intact]) + 1)


def _followed(content: bytes, position: int) -> tuple[NDArray[np.int64], int, int]:
    """As `_walk`, from `position` on and believing each length."""
    starts: list[int] = []
    # The only loop over single records: names are local because a long file has millions of them.
    length_at, add, end, missing = struct.Struct("<Q").unpack_from, starts.append, len(content), 0
    last_header = end - _HEADER.size
    while position <= last_header:
        stop = position + _FRAME_BYTES + length_at(content, position)[0]
        if stop > end:
            missing = stop - end
            break
        add(position)
        position = stop
    return np.array(starts, np.int64), position, missing


def _fits(array: Bytes, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) whether a length with its checksum stands at each of `starts`, (n,)."""
    headers = sliding_window_view(array, _HEADER.size)[starts] if starts.size else np.empty((0, _HEADER.size), np.uint8)
    return np.asarray(masked_crc32c(headers[:, :8].T) == _stored(headers[:, 8:]))


def _stored(columns: Bytes) -> Checksums:
    """(n,) checksums from their bytes, (n, 4)."""
    return np.ascontiguousarray(columns).view("<u4")[:, 0]


def _sought(array: Bytes, start: int) -> int:
    """The first place from `start` on where a length with its checksum stands, or else where one may begin that is cut off."""
    num_places = array.size - start - _HEADER.size + 1
    if num_places <= 0:
        return start
    fits = _fits(array, np.arange(start, start + num_places))
    return start + (int(fits.argmax()) if fits.any() else num_places)


def _checked(array: Bytes, starts: NDArray[np.int64], damage: Damage) -> Chunk:
    """The records at `starts` whose data fit their checksum, grouped by length."""
    groups: list[tuple[NDArray[np.int64], Bytes]] = []
    if starts.size:
        lengths = np.ascontiguousarray(sliding_window_view(array, 8)[starts]).view("<i8")[:, 0]
        order = np.argsort(lengths, kind="stable")
        for places in np.split(order, np.nonzero(np.diff(lengths[order]))[0] + 1):
            length = int(lengths[places[0]])
            records = sliding_window_view(array, length + _CHECKSUM.size)[starts[places] + _HEADER.size]
            columns = np.ascontiguousarray(records[:, :length].T)
            intact = masked_crc32c(columns) == _stored(records[:, length:])
            damage.num_bad += int((~intact).sum())
            groups.append((places, columns) if intact.all() else (places[intact], columns[:, intact]))
    return Chunk(int(starts.size), groups)
