"""The role's end of the pipe to the orchestrator, and what travels through it.

    orchestrator --Command--> role            role --Reply | News | Beat | Failed--> orchestrator

A role is a blocking loop without threads: it looks for commands between decode steps, says that it lives at least every
second while it works, and exits when the pipe closes, which it does when the orchestrator is gone for whatever reason.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
from dataclasses import dataclass
from typing import Any, NoReturn

from scalerl.core.clock import Clock
from scalerl.core.errors import ScalerlError

LENGTH = struct.Struct("<Q")
"""Bytes of the message that follows."""
BEAT_S = 1.0
"""Longest silence of a role at work."""
RESUME = "go on from the last checkpoint with --resume"
"""Remedy for a role that is lost."""


@dataclass(frozen=True, slots=True)
class Command:
    """Call a method of the role; with a `call` the orchestrator waits for the Reply of that number."""

    method: str
    arguments: tuple[Any, ...]
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command returned."""

    call: int
    value: Any


@dataclass(frozen=True, slots=True)
class News:
    """Something that the role tells unasked."""

    value: Any


@dataclass(frozen=True, slots=True)
class Beat:
    """The role lives."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The role cannot go on, and why."""

    error: ScalerlError


Message = Reply | News | Beat | Failed


def framed(message: Command | Message) -> bytes:
    """A message as it travels."""
    content = pickle.dumps(message, protocol=5)
    return LENGTH.pack(len(content)) + content


class Channel:
    """Blocking; every method ends the process when the orchestrator is gone."""

    def __init__(self, end: socket.socket, *, clock: Clock) -> None:
        self._end = end
        self._clock = clock
        self._beaten_s = clock.now_s()
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def send(self, message: Message) -> None:
        """Send; waits while the orchestrator does not read."""
        try:
            self._end.sendall(framed(message))
        except ConnectionError:
            raise SystemExit(1) from None
        self._beaten_s = self._clock.now_s()

    def has_command(self) -> bool:
        """Whether a command waits."""
        return self._ready(0.0)

    def wait(self) -> None:
        """Return when a command waits."""
        while not self._ready(BEAT_S):
            self.between()

    def receive(self) -> Command:
        """The next command; waits for it."""
        self.wait()
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        command = pickle.loads(self._read(length))
        assert isinstance(command, Command)
        return command

    def between(self) -> None:
        """To be called between pieces of work: a sign of life if one is due, and the end if nobody is there to see it."""
        self._ready(0.0)
        if self._clock.now_s() - self._beaten_s >= BEAT_S:
            self.send(Beat())

    def fail(self, error: ScalerlError) -> NoReturn:
        """Say why the role cannot go on, and stay until the orchestrator hangs up.

        Were this end closed while commands wait in it, the pipe would break and the reason be lost with it.
        """
        self.send(Failed(error))
        while True:
            self.receive()

    def _ready(self, timeout_s: float) -> bool:
        events = self._poll.poll(1000.0 * timeout_s)
        if any(event & ~select.POLLIN for _, event in events):
            raise SystemExit(1)
        return bool(events)

    def _read(self, length: int) -> bytearray:
        content = bytearray(length)
        unread = memoryview(content)
        while unread:
            try:
                num_read = self._end.recv_into(unread)
            except ConnectionError:
                num_read = 0
            if not num_read:
                raise SystemExit(1)
            unread = unread[num_read:]
        return content
