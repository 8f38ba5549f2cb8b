"""The meter of one device: every second of it is spent on one activity, and each is measured where it is spent.

    with meter.doing(Activity.GENERATE):
        ...
        with meter.doing(Activity.REPREFILL):     # the outer activity stands still meanwhile
            ...
    costs = meter.collect()

Idle time is measured like work, at each wait, with what was waited for as its detail; it is never what is left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scalerl.core.clock import Clock
from scalerl.records.cost import Activity, Cost

_Kind = tuple[Activity, str]


class Meter:
    """Books seconds, FLOPs and tokens of one device until they are collected."""

    def __init__(self, device: str, *, clock: Clock) -> None:
        self.device = device
        self.clock = clock
        self._doing: list[_Kind] = []
        self._since_s = clock.now_s()
        self._seconds: dict[_Kind, float] = {}
        self._counts: dict[_Kind, tuple[float, float, int]] = {}
        self._totals_s: dict[_Kind, float] = {}

    @contextmanager
    def doing(self, activity: Activity, detail: str = "") -> Iterator[None]:
        """Book the time of the block to `activity`, but for that of blocks within it."""
        self._book()
        self._doing.append((activity, detail))
        try:
            yield
        finally:
            self._book()
            self._doing.pop()

    def count(self, activity: Activity, *, flops: float = 0.0, overhead_flops: float = 0.0, tokens: int = 0, detail: str = "") -> None:
        """Book work that was done, whenever it took its time."""
        old_flops, old_overhead, old_tokens = self._counts.get((activity, detail), (0.0, 0.0, 0))
        self._counts[activity, detail] = (old_flops + flops, old_overhead + overhead_flops, old_tokens + tokens)

    def total_s(self, activity: Activity, detail: str = "") -> float:
        """Seconds booked so since the meter began, collected ones too, up to the last block that began or ended."""
        return self._totals_s.get((activity, detail), 0.0)

    def collect(self) -> tuple[Cost, ...]:
        """Everything booked since the last call, an activity that goes on included up to now."""
        self._book()
        costs = []
        for activity, detail in self._seconds | self._counts:
            flops, overhead_flops, tokens = self._counts.get((activity, detail), (0.0, 0.0, 0))
            seconds = self._seconds.get((activity, detail), 0.0)
            costs.append(Cost(self.device, activity, seconds, flops, overhead_flops, tokens, detail=detail))
        self._seconds, self._counts = {}, {}
        return tuple(costs)

    def _book(self) -> None:
        now_s = self.clock.now_s()
        if self._doing:
            kind = self._doing[-1]
            for seconds in (self._seconds, self._totals_s):
                seconds[kind] = seconds.get(kind, 0.0) + now_s - self._since_s
        self._since_s = now_s
