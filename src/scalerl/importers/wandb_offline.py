"""Weights & Biases as it lies on disk: `run-ID.wandb`, its folder, or the folder `wandb` with all of a project's runs.

    scalerl fit wandb/                              a curve for each run
    scalerl fit wandb/offline-run-20260101_120000-x7k2p9qd/run-x7k2p9qd.wandb

Every run writes this log, online or offline, while it goes on; nothing is uploaded to read it, and no package is needed.
Nested names are joined by slashes. `_step` counts calls of `log`, so a column that counts training steps comes first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from scalerl.importers._json import decoded
from scalerl.importers.framing.leveldb import SIGNATURE, framed
from scalerl.importers.framing.protobuf import BYTES, FIXED64, VARINT, encoded, fields, tag_of, varint
from scalerl.importers.framing.run_logs import Cells, Run, RunLogs

_SIGNATURE = SIGNATURE.pack(b":W&B", 0xBEE1, 0)
_DOUBLE = struct.Struct("<d")
_STEP = "_step"

# https://github.com/wandb/wandb/blob/main/wandb/proto/wandb_internal.proto
_HISTORY, _RUN = tag_of(2, BYTES), tag_of(17, BYTES)
_DISPLAY_NAME = tag_of(8, BYTES)
_ITEM = tag_of(1, BYTES)
_KEY, _NESTED_KEY, _VALUE_JSON = tag_of(1, BYTES), tag_of(2, BYTES), tag_of(16, BYTES)
_INTEGER, _NUMBER, _TEXT = tag_of(5, VARINT), tag_of(6, FIXED64), tag_of(7, BYTES)


def _example() -> bytes:
    """A run with three evaluations."""
    contents = [encoded(17, encoded(1, "x7k2p9qd") + encoded(8, "example"))]
    for step, accuracy in ((1, "0.21"), (2, "0.33"), (3, "0.41")):
        cells = {_STEP: str(step), "_runtime": str(10 * step), "eval/accuracy": accuracy}
        contents.append(encoded(2, b"".join(encoded(1, encoded(2, key) + encoded(16, cell)) for key, cell in cells.items())))
    return framed(contents, signature=_SIGNATURE)


class WandbOffline(RunLogs):
    """The log that the package writes before anything is uploaded."""

    example = {"run-x7k2p9qd.wandb": _example()}
    signature = _SIGNATURE
    suffix = ".wandb"

    def run_of(self, file: Path) -> Run:
        """By the id in the file's name."""
        return Run(file.stem.removeprefix("run-"))

    def cells(self, record: bytes, run: Run) -> Iterator[tuple[object, Cells]]:
        """A row of history; the record of the run has the name that its user sees."""
        for tag, start, stop in fields(record):
            if tag == _RUN:
                run.name = next((_text(record, *place) for key, *place in fields(record, start, stop) if key == _DISPLAY_NAME), "")
            elif tag == _HISTORY:
                cells = [_cell(record[begin:end]) for key, begin, end in fields(record, start, stop) if key == _ITEM]
                yield next((value for name, value in cells if name == _STEP), None), cells


def _cell(item: bytes) -> tuple[str, object]:
    """Name and value of an item of history, written as JSON or, by later versions, with its type."""
    names: list[str] = []
    value: object = None
    for tag, start, stop in fields(item):
        if tag == _VALUE_JSON:
            value = _value(item[start:stop])
        elif tag in (_KEY, _NESTED_KEY):
            names.append(_text(item, start, stop))
        elif tag == _NUMBER:
            (value,) = _DOUBLE.unpack_from(item, start)
        elif tag == _INTEGER:
            zigzag, _ = varint(item, start)
            value = zigzag >> 1 ^ -(zigzag & 1)
        elif tag == _TEXT:
            value = _text(item, start, stop)
    return "/".join(names), value


def _value(text: bytes) -> object:
    """What a cell holds that was written as JSON."""
    try:
        return float(text)  # also NaN and Infinity, as Python writes them
    except ValueError:
        return decoded(text)


def _text(message: bytes, start: int, stop: int) -> str:
    return message[start:stop].decode("utf-8", errors="replace")
