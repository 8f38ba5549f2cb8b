"""The curve of a run: held-out pass rate against the compute at which the evaluated version was made.

Useful compute only: a resume takes the axis back to its checkpoint (the lineage that goes on wins), and what was thrown
away is the curve's `wasted_compute`. Evaluation is booked apart and where it blocked, its time leaves the axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scalerl.accounting.fold import Fold
from scalerl.accounting.spending import Amounts, Spending
from scalerl.core.errors import CorruptLogError, DataError
from scalerl.core.units import DEVICE_HOURS, FLOPS, TOKENS, USD, Axis
from scalerl.records.curve import Curve
from scalerl.records.events import BaseReady, Evaluated, Resumed, RunEntry, RunStarted, StepFinished

_LATEST_VERSIONS = 1024
"""An evaluation may run this many steps behind the trainer."""

RUN_AXES: tuple[Axis, ...] = (FLOPS, DEVICE_HOURS, TOKENS, USD)
"""Axes of our own runs, the default first: FLOPs compare between machines."""


class Point(msgspec.Struct, frozen=True):
    """One evaluation."""

    seq: int
    version: int
    num_passed: int
    num_graded: int
    amounts: Amounts


class Made(msgspec.Struct, frozen=True):
    """The event after which a version existed, and what had been spent by then."""

    seq: int
    amounts: Amounts


class CurveFold(Fold):
    """Collects the evaluations of each task, with what had been spent when their version was made."""

    points: dict[str, list[Point]] = {}
    spending: Spending = msgspec.field(default_factory=Spending)
    made: dict[int, Made] = {}
    """The latest versions: those that may still be evaluated."""

    def update(self, entry: RunEntry) -> None:
        """Take in one entry, in order."""
        self.spending.update(entry)
        event = entry.event
        if isinstance(event, RunStarted | BaseReady):
            self.made = {0: Made(entry.seq, Amounts())}
        elif isinstance(event, StepFinished):
            self._make(event.version, entry.seq)
        elif isinstance(event, Evaluated):
            self._evaluate(entry.seq, event)
        elif isinstance(event, Resumed):
            self._roll_back(event.from_seq)

    def _make(self, version: int, seq: int) -> None:
        # A step without update leaves the version, and what it took, as they were.
        if version in self.made:
            return
        self.made[version] = Made(seq, msgspec.structs.replace(self.spending.useful))
        if len(self.made) > _LATEST_VERSIONS:
            del self.made[min(self.made)]

    def _evaluate(self, seq: int, event: Evaluated) -> None:
        if event.version not in self.made:
            raise CorruptLogError(
                f"version {event.version} was evaluated, but is not among the latest ones made",
                where=f"event {seq}",
                remedy="restore the log from a copy",
            )
        if event.num_graded:
            point = Point(seq, event.version, event.num_passed, event.num_graded, self.made[event.version].amounts)
            self.points.setdefault(event.task, []).append(point)

    def _roll_back(self, seq: int) -> None:
        self.points = {task: [point for point in points if point.seq <= seq] for task, points in self.points.items()}
        kept = {version: made for version, made in self.made.items() if made.seq <= seq}
        self.made = kept or {0: Made(seq, Amounts())}

    def curve(self, task: str, *, axis: Axis = FLOPS, name: str = "", source: str = "") -> Curve:
        """The curve of `task` on `axis`.

        Raises:
            DataError: the task was never evaluated, or the run has no price and the axis is dollars.
        """
        points = self.points.get(task)
        if not points:
            raise DataError(f"task '{task}' has no evaluation", where=source or None, remedy="wait for the first one")
        return Curve.of(
            name or task,
            axis,
            [_on_axis(point.amounts, axis, source) for point in points],
            [point.num_passed / point.num_graded for point in points],
            trials=[point.num_graded for point in points],
            metric="pass_rate",
            source=source,
            wasted_compute=self.wasted(axis),
        )

    def tasks(self) -> Sequence[str]:
        """Tasks that were evaluated."""
        return [task for task, points in self.points.items() if points]

    def wasted(self, axis: Axis) -> float:
        """What resumes threw away, on `axis`; 0 where it is not known."""
        return self.spending.wasted.on(axis) or 0.0


def _on_axis(amounts: Amounts, axis: Axis, source: str) -> float:
    value = amounts.on(axis)
    if value is None:
        remedy = "choose one of " + ", ".join(known.name for known in RUN_AXES)
        raise DataError(f"the run does not know its {axis.unit}", where=source or None, remedy=remedy)
    return value
