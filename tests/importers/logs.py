"""Small logs, written to a folder by a test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path


def jsonl(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def text(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


def said(notes: Iterable[str], *words: str) -> bool:
    """Whether one note holds all `words`."""
    return any(all(word in note for word in words) for note in notes)
