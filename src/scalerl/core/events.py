"""Reading an append-only log of events: one JSON object per line, numbered without gaps.

    {"seq": 17, "time_s": 1790000000.25, "event": {"kind": "...", ...}}

A crash can tear the last line and nothing else. Damage anywhere else means that somebody changed the file, and no
reader goes on; nor does it where an event is of a kind that it does not know. What events are is the caller's business.
The one writer stands in `log_writer.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from scalerl.core.errors import CorruptLogError, DataError

EventT = TypeVar("EventT")


class Entry(msgspec.Struct, Generic[EventT], frozen=True):
    """An event with its place in the log."""

    seq: int
    """0 for the first event, then one more each."""
    time_s: float
    """When it was appended, seconds since the epoch."""
    event: EventT


class LogReader(Generic[EventT]):
    """Iterates over the entries of a log from event number `start` on.

    Afterwards `torn_bytes` tells how long a torn last line was that was left out.

    Raises:
        DataError: the file cannot be read.
        CorruptLogError: an event is missing, or a line that is not the last cannot be understood.
    """

    def __init__(self, path: Path, event_type: Any, *, start: int = 0) -> None:
        self.path = path
        self.start = start
        self.torn_bytes = 0
        self._decoder = msgspec.json.Decoder(Entry[event_type])

    def __iter__(self) -> Iterator[Entry[EventT]]:
        try:
            with self.path.open("rb") as file:
                yield from self._entries(itertools.islice(file, self.start, None))
        except OSError as error:
            raise DataError(f"the event log cannot be read ({error.strerror})", where=str(self.path), remedy="give a run folder") from None

    def _entries(self, lines: Iterator[bytes]) -> Iterator[Entry[EventT]]:
        self.torn_bytes = 0
        for seq, line in enumerate(lines, self.start):
            entry: Entry[EventT] | None = decoded(line, self._decoder)
            if entry is None or not line.endswith(b"\n"):
                # A line without its end is the last one: torn, or being written at this moment.
                if not line.endswith(b"\n") or (is_torn(line) and next(lines, None) is None):
                    self.torn_bytes = len(line)
                    return
                raise corrupt("the line is damaged or of another version", self.path, seq)
            if entry.seq != seq:
                raise corrupt(f"event {seq} is missing: event {entry.seq} stands in its place", self.path, seq)
            yield entry


def is_torn(line: bytes) -> bool:
    """Whether a crash can have left the line like this: without its end, or as no JSON at all."""
    if not line.endswith(b"\n"):
        return True
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def decoded(line: bytes, decoder: msgspec.json.Decoder[Entry[Any]]) -> Entry[Any] | None:
    """The entry of a line; None if it holds none that this version knows."""
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def corrupt(what: str, path: Path, seq: int) -> CorruptLogError:
    """The error for a log that is damaged at event `seq`."""
    remedy = "restore the file from a copy, or read it with the version that wrote it"
    return CorruptLogError(what, where=f"{path}, line {seq + 1}", remedy=remedy)
