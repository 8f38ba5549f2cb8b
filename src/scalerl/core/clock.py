"""Time as an argument: the loop, the run and the simulator read the clock that they are given.

Only this file reads the machine's clock, so everything else runs the same on simulated time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the epoch, never running backwards within one process."""

    def now_s(self) -> float:
        """The time, in seconds."""
        ...


class SystemClock:
    """The machine's clock: anchored once on wall time, then advanced by the monotonic clock.

    A wall clock that is set back during a run must not make time negative: durations are differences of `now_s`.
    """

    def __init__(self) -> None:
        self._anchor_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        """The machine's time, in seconds since the epoch."""
        return self._anchor_s + time.monotonic()


class ManualClock:
    """A clock that stands still until it is advanced, for tests and simulations."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        """The time it was last advanced to, in seconds."""
        return self._now_s

    def advance(self, duration_s: float) -> None:
        """Move time forward by `duration_s` seconds, 0 or more."""
        assert duration_s >= 0.0, "time does not run backwards"
        self._now_s += duration_s
