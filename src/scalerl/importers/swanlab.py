"""SwanLab's log on disk, `*.swanlab` in the run's folder. Experimental: written from the published format, version 2.

    https://github.com/SwanHubX/SwanLab/tree/main/protos/swanlab

Untested against the real library: its files were never at hand. The first version of the format holds JSON and is refused.
Time stamps serve as clock if nothing better was logged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from scalerl.importers.framing.leveldb import SIGNATURE, framed
from scalerl.importers.framing.protobuf import BYTES, FIXED64, VARINT, encoded, fields, signed, tag_of, varint
from scalerl.importers.framing.run_logs import Cells, Run, RunLogs

_SIGNATURE = SIGNATURE.pack(b":SWL", 0xE1D6, 2)
_DOUBLE = struct.Struct("<d")

_SCALAR = tag_of(13, BYTES)
_KEY, _STEP, _TIMESTAMP, _VALUE = tag_of(1, BYTES), tag_of(2, VARINT), tag_of(4, BYTES), tag_of(5, BYTES)
_SECONDS, _NANOSECONDS = tag_of(1, VARINT), tag_of(2, VARINT)
_NUMBER = tag_of(1, FIXED64)


def _example() -> bytes:
    """Three evaluations, ten seconds apart."""
    scalars = [
        encoded(1, "eval/accuracy") + encoded(2, step) + encoded(4, encoded(1, 1000 + 10 * step)) + encoded(5, encoded(1, accuracy))
        for step, accuracy in ((1, 0.21), (2, 0.33), (3, 0.41))
    ]
    return framed([encoded(13, scalar) for scalar in scalars], signature=_SIGNATURE)


class Swanlab(RunLogs):
    """A record for each scalar."""

    example = {"backup.swanlab": _example()}
    signature = _SIGNATURE
    suffix = ".swanlab"

    def run_of(self, file: Path) -> Run:
        """By the folder, which is called after the run."""
        return Run(file.resolve().parent.name)

    def cells(self, record: bytes, run: Run) -> Iterator[tuple[object, Cells]]:  # noqa: ARG002
        """A scalar with its step and its time."""
        for tag, start, stop in fields(record):
            if tag == _SCALAR:
                yield _scalar(record[start:stop])


def _scalar(message: bytes) -> tuple[int, Cells]:
    """The step, and the cells of a scalar; a number or a step that is 0 is not written."""
    name, step, number = "", 0, None
    cells: Cells = []
    for tag, start, stop in fields(message):
        if tag == _KEY:
            name = message[start:stop].decode("utf-8", errors="replace")
        elif tag == _STEP:
            step = signed(varint(message, start)[0])
        elif tag == _TIMESTAMP:
            cells.append(("_timestamp", _seconds(message[start:stop])))
        elif tag == _VALUE:
            number = next((_DOUBLE.unpack_from(message, at)[0] for key, at, _ in fields(message, start, stop) if key == _NUMBER), 0.0)
    return step, [("step", step), *cells, (name, number)]


def _seconds(timestamp: bytes) -> float:
    """Seconds since 1970."""
    number_of = {tag: signed(varint(timestamp, start)[0]) for tag, start, _ in fields(timestamp) if tag in (_SECONDS, _NANOSECONDS)}
    return number_of.get(_SECONDS, 0) + number_of.get(_NANOSECONDS, 0) / 1e9
