"""The orchestrator's end of a role: what it tells, asks and hears. Plain asyncio on file descriptors, no threads."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import signal
import socket
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar

from scalerl.core.clock import Clock
from scalerl.core.errors import ScalerlError
from scalerl.runtimes._channel import BEAT_S, LENGTH, RESUME, Beat, Command, Failed, Message, News, Reply, framed
from scalerl.runtimes._serve import Birth, main

EXIT_S = 5.0
"""Patience with a process that has closed its pipe and is about to exit."""

Doom = asyncio.Future[None]
"""Gets the error of the first failure that ends what shares it: a role that may be replaced, or the whole run, whoever is waited for."""


Result = TypeVar("Result")


class Link(Protocol):
    """A role that can be told and asked, wherever it lives."""

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method of the role without waiting for it."""
        ...

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the role and return what it returns."""
        ...

    async def news(self) -> Any:
        """The next thing that the role tells unasked."""
        ...


class ProcessLink:
    """A role in a process of its own. Calls are carried out in the order in which they are made."""

    def __init__(
        self,
        process: BaseProcess,
        *,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        doom: Doom,
        heartbeat_timeout_s: float,
        clock: Clock,
        loss: type[ScalerlError] = ScalerlError,
    ) -> None:
        """
        Args:
            loss: the kind of error that tells of its death or silence.
        """
        self.process = process
        self.told_s = clock.now_s()
        """When it last said more than that it lives: what it has done since goes with it."""
        self._reader, self._writer = streams
        self._doom = doom
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._clock = clock
        self._loss = loss
        self._silent_s = 0.0
        self._calls = itertools.count()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._news: deque[Any] = deque()
        self._came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(work) for work in (self._listen(), self._watch())]
        for task in self._tasks:
            task.add_done_callback(self._fail_with)

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method of the role without waiting for it."""
        self._writer.write(framed(Command(method, arguments)))

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the role and return what it returns.

        Raises:
            ScalerlError: a role has failed, died or fallen silent.
        """
        call = next(self._calls)
        self._replies[call] = reply = asyncio.get_running_loop().create_future()
        self._writer.write(framed(Command(method, arguments, call)))
        try:
            return await self._unless_doomed(reply)
        finally:
            del self._replies[call]

    async def news(self) -> Any:
        """The next thing that the role tells unasked; for one task at a time. Nothing is lost if that is cancelled.

        Raises:
            ScalerlError: a role has failed, died or fallen silent.
        """
        while not self._news:
            self._came = asyncio.get_running_loop().create_future()
            await self._unless_doomed(self._came)
        return self._news.popleft()

    async def while_alive(self, other: Coroutine[Any, Any, Result]) -> Result:
        """What `other` returns.

        Raises:
            ScalerlError: this role has failed meanwhile, died or fallen silent.
        """
        result: Result = await self._unless_doomed(asyncio.ensure_future(other))
        return result

    def close(self) -> None:
        """Stop listening; the process sees the pipe close."""
        for task in self._tasks:
            task.cancel()
        self._writer.close()

    async def _unless_doomed(self, awaited: asyncio.Future[Any]) -> Any:
        await asyncio.wait({awaited, self._doom}, return_when=asyncio.FIRST_COMPLETED)
        return awaited.result() if awaited.done() else self._doom.result()

    async def _listen(self) -> None:
        try:
            while True:
                self._hear(await self._message())
        except (asyncio.IncompleteReadError, ConnectionError):
            self.process.join(EXIT_S)
            raise self._loss(f"the {self.process.name} died ({self._exit()})", remedy=RESUME) from None

    async def _message(self) -> Message:
        (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        message: Message = pickle.loads(await self._reader.readexactly(length))
        return message

    def _hear(self, message: Message) -> None:
        self._silent_s = 0.0
        if not isinstance(message, Beat):
            self.told_s = self._clock.now_s()
        match message:
            case Beat():
                pass
            case News(value):
                self._news.append(value)
                if not self._came.done():
                    self._came.set_result(None)
            case Reply(call, value):
                # Nobody waits any more where the asking task was cancelled.
                if call in self._replies:
                    self._replies[call].set_result(value)
            case Failed(error):
                raise error

    async def _watch(self) -> None:
        """Fail when nothing was heard for too long, counted in ticks: a computer that slept wakes without a false alarm."""
        tick_s = min(BEAT_S, self._heartbeat_timeout_s / 4)
        while self._silent_s < self._heartbeat_timeout_s:
            await asyncio.sleep(tick_s)
            self._silent_s += tick_s
        raise self._loss(
            f"nothing was heard from the {self.process.name} for {self._heartbeat_timeout_s:g} s",
            where="runtime.heartbeat_timeout_s",
            remedy=f"{RESUME}, and raise the time-out if it was only slow",
        )

    def _fail_with(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._doom.done():
            self._doom.set_exception(error)
            self._doom.exception()  # Known from now on, even if nobody waits for a role.

    def _exit(self) -> str:
        code = self.process.exitcode
        if code is None:
            return "it closed its pipe"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def spawned(birth: Birth) -> tuple[BaseProcess, socket.socket]:
    """A process that begins to be a role, and the orchestrator's end of its pipe.

    Raises:
        ScalerlError: the machine has no room for another process.
    """
    ours, theirs = socket.socketpair()
    process = get_context("spawn").Process(target=main, args=(birth, theirs), name=birth.name)
    try:
        with theirs, _interrupts_held():
            process.start()
    except OSError as error:
        ours.close()
        raise ScalerlError(f"no process for the {birth.name} could be started ({error})", remedy=RESUME) from error
    return process, ours


def end(processes: list[BaseProcess]) -> None:
    """End processes and wait until they are gone, so that what they used is accounted for.

    They are killed: a role has nothing to clean up, and one that is stopped would not hear a kinder signal.
    """
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
        process.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back: a process that starts meanwhile does not see it before it can ignore it, and this one misses none."""
    resource_tracker.ensure_running()  # Its own start, which the first spawn would bring about, lets go of Ctrl-C.
    held_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held_before)
