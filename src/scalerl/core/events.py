"""An append-only log of events: one writer, one JSON object per line, numbered without gaps.

    {"seq": 17, "time_s": 1790000000.25, "event": {"kind": "...", ...}}

A crash can tear the last line and nothing else: opening the log for writing cuts it and says so. Damage anywhere else
means that somebody changed the file, and no reader goes on. What the events are is the caller's business.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from scalerl.core.clock import Clock
from scalerl.core.errors import CorruptLogError, DataError, OccupiedError, ScalerlError

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
            entry: Entry[EventT] | None = _decoded(line, self._decoder)
            if entry is None or not line.endswith(b"\n"):
                if next(lines, None) is not None:
                    raise _corrupt("the line is damaged or of another version", self.path, seq)
                self.torn_bytes = len(line)
                return
            if entry.seq != seq:
                raise _corrupt(f"event {seq} is missing: event {entry.seq} stands in its place", self.path, seq)
            yield entry


def _decoded(line: bytes, decoder: msgspec.json.Decoder[Entry[Any]]) -> Entry[Any] | None:
    """The entry of a line; None if it cannot be understood."""
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _corrupt(what: str, path: Path, seq: int) -> CorruptLogError:
    remedy = "restore the file from a copy, or read it with the version that wrote it"
    return CorruptLogError(what, where=f"{path}, line {seq + 1}", remedy=remedy)


class LogWriter(Generic[EventT]):
    """The one writer of a log. Each event is one `write` call, so a killed process tears at most the last line.

    Raises:
        OccupiedError: another process holds the log.
        CorruptLogError: the log is damaged before its last line.
    """

    def __init__(self, path: Path, event_type: Any, *, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._lock()
            self.cut_bytes, self.next_seq = self._recover(event_type)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._size_bytes = os.fstat(self._descriptor).st_size

    def append(self, event: EventT) -> Entry[EventT]:
        """Number `event`, stamp it and write it; either the whole line is in the file afterwards, or nothing of it."""
        entry = Entry(self.next_seq, self._clock.now_s(), event)
        line = self._encoder.encode(entry) + b"\n"
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size_bytes)
            raise ScalerlError(
                f"event {entry.seq} cannot be written ({error.strerror})",
                where=str(self.path),
                remedy="free disk space, then resume the run",
            ) from None
        self._size_bytes += len(line)
        self.next_seq += 1
        return entry

    def sync(self) -> None:
        """Return when everything appended so far is on disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Sync, and let another writer in."""
        self.sync()
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OccupiedError("another process writes this log", where=str(self.path), remedy="wait for it to end, or stop it") from None

    def _recover(self, event_type: Any) -> tuple[int, int]:
        """Cut a torn last line; return its length in bytes and the number of the next event."""
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            return 0, 0
        decoder = msgspec.json.Decoder(Entry[event_type])
        with mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ) as content:
            end = content.rfind(b"\n") + 1
            last = _decoded(_line_before(content, end), decoder)
            if last is None and end > 0:
                end -= len(_line_before(content, end))
                last = _decoded(_line_before(content, end), decoder)
        if last is None and end > 0:
            raise CorruptLogError("its last two lines are damaged", where=str(self.path), remedy="restore the file from a copy")
        os.ftruncate(self._descriptor, end)
        return size - end, 0 if last is None else last.seq + 1


def _line_before(content: mmap.mmap, end: int) -> bytes:
    """The line that ends at byte `end`, its newline included; empty at the beginning of the file."""
    start = content.rfind(b"\n", 0, end - 1) + 1 if end else 0
    return content[start:end]
