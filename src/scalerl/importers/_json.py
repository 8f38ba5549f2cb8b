"""JSON as training frameworks write it, for every format that holds some.

Python writes NaN and Infinity as bare words, which JSON does not know; such texts are read by the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


def decoded(text: bytes | str) -> Any:
    """The value that a JSON text holds; None if it holds none."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def flat(row: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """(name, cell) of every cell, with the names of nested objects joined by slashes."""
    return _joined(row) if dict in map(type, row.values()) else row.items()


def _joined(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    pending = [("", row)]
    while pending:
        prefix, cells = pending.pop()
        for name, cell in cells.items():
            if isinstance(cell, dict):
                pending.append((f"{prefix}{name}/", cell))
            else:
                yield prefix + name, cell
