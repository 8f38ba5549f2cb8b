"""Virtual time: an event loop whose clock jumps from timer to timer, so that hours take milliseconds and replay exactly."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Stuck(Exception):
    """Nothing can happen any more: every task waits for another one."""


class _JumpingSelector(selectors.SelectSelector):
    """Waits by moving the time of its loop forward."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.loop.turn(max(timeout, 0.0))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop and a clock in one; its time stands still while code runs and jumps to the next timer when all wait."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self.before_turn: Callable[[], None] = lambda: None
        """Called whenever every task has come to an await; what it raises ends the loop like a kill."""
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """The loop's time, in seconds."""
        return self._now_s

    def now_s(self) -> float:
        """The clock's time, in seconds."""
        return self._now_s

    def turn(self, duration_s: float) -> None:
        """Begin a turn of the loop, so much later than the last one."""
        self.before_turn()
        self._now_s += duration_s


def run_virtually(main: Coroutine[Any, Any, Result], *, loop: VirtualLoop) -> Result:
    """Run `main` on virtual time until it ends; what it leaves behind is cancelled, as by a kill.

    Raises:
        Stuck: it waits for something that cannot come.
    """
    task = loop.create_task(main)
    try:
        return loop.run_until_complete(task)
    finally:
        loop.before_turn = lambda: None
        # What is left to do in this turn; `main` may have come to its end in it, and nobody asks how.
        loop.call_soon(loop.stop)
        loop.run_forever()
        if task.done() and not task.cancelled():
            task.exception()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()
