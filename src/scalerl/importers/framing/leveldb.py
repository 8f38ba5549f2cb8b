"""The log format of LevelDB as W&B and SwanLab write it: a header of 7 bytes, then blocks of 32 KiB with records in them.

    https://github.com/google/leveldb/blob/main/doc/log_format.md

A record is checksum (4 bytes), length (2), type (1) and data; one that does not fit into its block is cut into a first,
middle ones and a last. Unlike LevelDB's, the checksum is the common CRC-32 of type and data, not masked. It does not cover
the length: behind a damaged record the walk goes on by a length that may be wrong, and finds nothing that fits until the
next block begins.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from scalerl.importers.framing.damage import Damage

SIGNATURE = struct.Struct("<4sHB")
"""Name, magic number and version of what is framed: the first bytes of a file."""
_BLOCK_BYTES = 32 * 1024
_HEADER = struct.Struct("<IHB")
_TYPE_PLACE = 6
"""Of the type within a record's header, from where on the checksum counts."""
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_DAMAGED = -1


def records(path: Path, signature: bytes, damage: Damage) -> Iterator[bytes]:
    """The intact records of the file behind its `signature`; `damage` receives what else there was."""
    parts: list[bytes] = []
    for kind, data in _fragments(path, signature, damage):
        if kind in (_MIDDLE, _LAST):
            if parts:  # its beginning was intact
                parts.append(data)
        else:
            damage.num_bad += bool(parts) and kind != _DAMAGED
            parts = [data] if kind in (_FULL, _FIRST) else []
        if parts and kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []
    damage.cut_short |= bool(parts)


def framed(contents: Iterable[bytes], *, signature: bytes) -> bytes:
    """A file of short `contents`, all in one block."""
    return signature + b"".join(_HEADER.pack(zlib.crc32(bytes([_FULL]) + content), len(content), _FULL) + content for content in contents)


def _fragments(path: Path, signature: bytes, damage: Damage) -> Iterator[tuple[int, bytes]]:
    """(type, data) of each intact fragment, and `_DAMAGED` once for each stretch that holds none."""
    kind_before, position = _FULL, len(signature)
    with path.open("rb") as file:
        damage.num_bad += file.read(len(signature)) != signature
        file.seek(0)
        while block := file.read(_BLOCK_BYTES):
            is_last = len(block) < _BLOCK_BYTES
            while position <= len(block) - _HEADER.size:
                checksum, length, kind = _HEADER.unpack_from(block, position)
                stop = position + _HEADER.size + length
                if not any(block[position : position + _HEADER.size]):  # a machine that went down leaves zeros
                    damage.cut_short, stop = True, len(block)
                elif is_last and stop > len(block):
                    damage.cut_short = True
                elif zlib.crc32(block[position + _TYPE_PLACE : stop]) == checksum and stop <= len(block):
                    kind_before = kind
                    yield kind, block[position + _HEADER.size : stop]
                elif kind_before != _DAMAGED:
                    kind_before = _DAMAGED
                    damage.num_bad += 1
                    yield _DAMAGED, b""
                position = stop
            damage.cut_short |= is_last and position < len(block)
            position = 0
