"""The one writer of an event log: numbers events, stamps them, and appends each as a line by one `write` call.

A killed process tears at most the last line; opening the log again cuts it and says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self

import msgspec

from scalerl.core.clock import Clock
from scalerl.core.errors import CorruptLogError, OccupiedError, ScalerlError
from scalerl.core.events import Entry, EventT, decoded, is_torn


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
        self._decoder = msgspec.json.Decoder(Entry[event_type])
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise ScalerlError(
                f"the event log cannot be opened ({error.strerror})", where=str(path), remedy="give a run folder that may be written to"
            ) from None
        try:
            self._lock()
            self.cut_bytes, self.next_seq = self._recover()
        except BaseException:
            os.close(self._descriptor)
            raise
        self._size_bytes = os.fstat(self._descriptor).st_size

    def append(self, event: EventT) -> Entry[EventT]:
        """Number `event`, stamp it and write it; either the whole line is in the file afterwards, or nothing of it."""
        entry = Entry(self.next_seq, self._clock.now_s(), event)
        line = self._encoder.encode(entry) + b"\n"
        # A number that is not finite is written as null: better no event than a log that nobody can read.
        if decoded(line, self._decoder) is None:
            raise ScalerlError(f"event {entry.seq} could not be read back: {event!r}", where=str(self.path), remedy="look for NaN in it")
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
        """Return when everything appended so far is on disk.

        Raises:
            ScalerlError: the disk is full or fails, and says so only now.
        """
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise ScalerlError(
                f"the event log cannot be written ({error.strerror})",
                where=str(self.path),
                remedy="free disk space, then resume the run",
            ) from None

    def close(self) -> None:
        """Sync, and let another writer in, whether or not that succeeds."""
        try:
            self.sync()
        finally:
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

    def _recover(self) -> tuple[int, int]:
        """Cut a torn last line; return its length in bytes and the number of the next event."""
        size = os.fstat(self._descriptor).st_size
        if size == 0:
            return 0, 0
        with mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ) as content:
            end = content.rfind(b"\n") + 1
            last = _line_before(content, end)
            if last and is_torn(last):
                end -= len(last)
                last = _line_before(content, end)
        entry = decoded(last, self._decoder)
        if last and entry is None:
            raise CorruptLogError(
                "its last line is damaged or of another version", where=str(self.path), remedy="restore it, or go on with the newer version"
            )
        os.ftruncate(self._descriptor, end)
        return size - end, 0 if entry is None else entry.seq + 1


def _line_before(content: mmap.mmap, end: int) -> bytes:
    """The line that ends at byte `end`, its newline included; empty at the beginning of the file."""
    start = content.rfind(b"\n", 0, end - 1) + 1 if end else 0
    return content[start:end]
