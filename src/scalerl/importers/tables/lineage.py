"""The lineage of a run: what a log that was interrupted, resumed and appended to says about compute.

Checkpoints are rarer than log rows, so after a crash a log repeats steps, and its clock may start again. The rows of the
run that went on count; the compute of the rows that it replaced was spent and is *wasted*. Between two rows of one
process a counter grows by what it shows; at a resume it may have started again from zero, have been restored with the
checkpoint, or have run on through the pause, and the reading nearest to what a step usually costs is taken.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scalerl.records.curve import FloatArray

Counts = Literal["total", "per_step", "clock"]

_SHUFFLED_SHARE, _LEAST_BACK = 0.25, 2
"""Steps that go back this often, and in more than this share of the rows, are not in the order of time if none is repeated."""
_PAUSE_FACTOR, _PAUSE_S = 10.0, 3600.0
"""A clock that stands between two rows for more than an hour and ten times the usual is paused, not computing."""
_UNIX_S = 1e9
"""A clock above this (September 2001) is a time stamp."""
_LATE_GAPS, _LATE_SHARE = 1.5, 0.5
"""A log that begins more than so many usual gaps after step 0 starts late; a clock that then shows less than this share of
what the steps before must have taken counts from the start of its process."""


@dataclass(frozen=True, slots=True, eq=False)
class Lineage:
    """Compute along the run that went on."""

    counts: Counts
    """What the counter was taken for."""
    start: float | None
    """Step up to which nothing had been spent; None where rows stand for steps, whose first may be of any age."""
    steps: FloatArray
    """(n,) strictly increasing."""
    compute: FloatArray
    """(n,) spent when each of `steps` was done."""
    resumed_rows: NDArray[np.int64]
    """(m,) row at which each resume begins."""
    resumed_steps: FloatArray
    """(m,) first step of each resume."""
    wasted: float = 0.0
    """Spent on steps that a resume repeated."""
    paused_s: float = 0.0
    """Counted by the clock while the run stood still."""
    unlogged_until: float | None = None
    """First step of a log that starts late, where the steps before were counted at the rate of the first rows."""

    def at(self, steps: FloatArray) -> FloatArray:
        """(k,) compute spent when each of `steps`, (k,), was done: linear between the rows, NaN where no row follows or precedes."""
        known_steps, known_compute, before = self.steps, self.compute, np.nan
        if self.start is not None:
            before = 0.0
            if self.start < self.steps[0]:
                known_steps, known_compute = np.append(self.start, known_steps), np.append(0.0, known_compute)
        return np.asarray(np.interp(steps, known_steps, known_compute, left=before, right=np.nan), dtype=np.float64)

    def between_rows(self, steps: FloatArray) -> NDArray[np.bool_]:
        """(k,) whether the compute at each of `steps`, (k,), is interpolated rather than read or zero."""
        return ~np.isin(steps, self.steps) & (steps > (-np.inf if self.start is None else self.start))

    def kept(self, rows: NDArray[np.int64], steps: FloatArray) -> NDArray[np.bool_]:
        """(k,) whether the run went on from each row: no later resume began at its step or before."""
        first_repeated = np.append(np.minimum.accumulate(self.resumed_steps[::-1])[::-1], np.inf)
        kept: NDArray[np.bool_] = steps < first_repeated[np.searchsorted(self.resumed_rows, rows, side="right")]
        return kept


@dataclass(frozen=True, slots=True)
class _Mark:
    step: float
    value: float
    spent: float
    """Compute between the mark before and this one."""


@dataclass(frozen=True, slots=True)
class _Marks:
    """The marks of the run that went on, at 24 bytes each."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    spent: array[float] = field(default_factory=lambda: array("d"))

    def last(self) -> _Mark | None:
        """The last of them."""
        return _Mark(self.steps[-1], self.values[-1], self.spent[-1]) if self.steps else None

    def append(self, mark: _Mark) -> None:
        """Go on to a mark."""
        self.steps.append(mark.step)
        self.values.append(mark.value)
        self.spent.append(mark.spent)

    def pop(self) -> float:
        """Go back by one; what had been spent since the one before."""
        self.steps.pop()
        self.values.pop()
        return self.spent.pop()


def is_time_stamp(values: FloatArray) -> bool:
    """Whether the seconds `values`, (n,), n >= 1, count from 1970."""
    return bool(values.min() > _UNIX_S)


def shuffled(steps: FloatArray) -> bool:
    """Whether rows with these `steps`, (n,), are not in the order of time: newest first, or in none. A restart repeats steps."""
    stretches = steps[np.diff(steps, prepend=np.nan) != 0]
    back = np.diff(stretches) < 0
    return bool(back.sum() >= _LEAST_BACK and back.mean() > _SHUFFLED_SHARE and np.unique(stretches).size == stretches.size)


def logged_late(steps: FloatArray) -> NDArray[np.bool_]:
    """(n,) whether each row is of a step that was passed and that the log does not go on from: a value that came late.

    A restart repeats the steps up to the furthest one and only then goes beyond.
    """
    furthest = np.maximum.accumulate(steps)
    behind = steps < furthest
    late = np.zeros(steps.size, dtype=np.bool_)
    (edges,) = np.nonzero(np.diff(behind, prepend=False))
    for first, end in zip(edges[::2], edges[1::2], strict=False):
        late[first:end] = steps[end] > furthest[first]
    return late


def carried(values: FloatArray) -> FloatArray:
    """(n,) the `values`, (n,), such as steps, with each gap filled by the last one above it, and with 0 before the first."""
    known = np.isfinite(values)
    source = np.maximum.accumulate(np.where(known, np.arange(values.size), -1))
    first = values[known][0] if known.any() else 0.0
    filled: FloatArray = np.where(source >= 0, values[source], min(0.0, first))
    return filled


def step_before(steps: FloatArray) -> float:
    """The step before the first of `steps`, (n,), n >= 1: nothing had been spent then."""
    return min(0.0, float(steps[0]) - usual_gap(steps))


def without_steps(rows: NDArray[np.int64], values: FloatArray, *, counts: Counts) -> Lineage:
    """A log without a step column, where a resume cannot be told: rows, (n,), stand for steps."""
    if counts == "per_step":
        compute = np.cumsum(values)
    else:
        compute = values - values.min() if counts == "clock" and is_time_stamp(values) else values
    at = rows.astype(np.float64)
    if (between := usual_gap(at) - 1.0) > 0.0:
        # Where compute has rows of its own, the last one paid for the evaluations on the rows just after it.
        at, compute = np.append(at, at[-1] + between), np.append(compute, compute[-1])
    nothing = np.empty(0)
    return Lineage(counts, None, at, compute, nothing.astype(np.int64), nothing)


def follow(rows: NDArray[np.int64], steps: FloatArray, values: FloatArray, *, counts: Counts) -> Lineage:
    """The lineage of a counter: its rows, (n,) increasing, with their steps and finite values, n >= 1."""
    gap = usual_gap(steps)
    start = step_before(steps) if counts == "per_step" else min(0.0, float(steps[0]))
    rate = usual_rate(steps, values)
    starts_late = bool(steps[0] > _LATE_GAPS * gap)
    from_process = counts == "clock" and bool(values[0] > _UNIX_S or (starts_late and values[0] < _LATE_SHARE * rate * steps[0]))
    walk = _Walk(counts, _Mark(start, 0.0, 0.0), rate, starts_anywhere=from_process)
    for row, step, value in zip(rows.data, steps.data, values.data, strict=True):  # unlike lists, they make no million objects
        walk.take(row, step, value)
    return Lineage(
        counts=counts,
        start=start,
        steps=np.array(walk.marks.steps),
        compute=np.cumsum(walk.marks.spent),
        resumed_rows=np.array([row for row, _ in walk.resumes], dtype=np.int64),
        resumed_steps=np.array([step for _, step in walk.resumes], dtype=np.float64),
        wasted=walk.wasted,
        paused_s=walk.paused_s,
        unlogged_until=float(steps[0]) if starts_late and (from_process or counts == "per_step") else None,
    )


@dataclass(slots=True)
class _Walk:
    """Goes along the rows of a counter and keeps the marks of the run that went on."""

    counts: Counts
    origin: _Mark
    usual_rate: float
    """What a step usually adds to a total."""
    starts_anywhere: bool
    """Whether the first reading of a total says nothing of what was spent until then."""
    marks: _Marks = field(default_factory=_Marks)
    last: _Mark | None = None
    """The row before, whether or not the run went on from it."""
    resumes: list[tuple[int, float]] = field(default_factory=list)
    wasted: float = 0.0
    paused_s: float = 0.0

    def take(self, row: int, step: float, value: float) -> None:
        """Go on to the next row."""
        last = self.last
        resumed = last is not None and (step < last.step or (self.counts != "per_step" and value < last.value))
        if resumed:
            self._go_back(row, step)
        elif last is not None and step == last.step:  # logged again: the last counts
            self.marks.pop()
        before = self.marks.last() or self.origin
        usual = self.usual_rate * (step - before.step)
        if self.counts == "per_step":
            spent = value * (step - before.step)
        elif last is None:
            spent = usual if self.starts_anywhere else value
        elif resumed:
            spent = _spent_at_resume(value, checkpoint=before.value, crash=last.value, usual=usual)
        else:
            spent = self._without_pause(value - last.value + (last.spent if step == last.step else 0.0), usual)
        self.last = _Mark(step, value, spent)
        self.marks.append(self.last)

    def _go_back(self, row: int, step: float) -> None:
        self.resumes.append((row, step))
        while self.marks.steps and self.marks.steps[-1] >= step:
            self.wasted += self.marks.pop()

    def _without_pause(self, spent: float, usual: float) -> float:
        if self.counts != "clock" or spent <= max(_PAUSE_FACTOR * usual, _PAUSE_S):
            return spent
        self.paused_s += spent - usual
        return usual


def _spent_at_resume(value: float, *, checkpoint: float, crash: float, usual: float) -> float:
    """What the first step after a resume cost, given the counter then, at the checkpoint and at the crash."""
    ran_on = min(value - crash, usual)  # the pause is in the difference
    readings = [reading for reading in (value, value - checkpoint, ran_on) if reading >= 0.0]
    return min(readings, key=lambda reading: abs(reading - usual), default=value)


def usual_gap(steps: FloatArray) -> float:
    """Median number of steps from one of `steps`, (n,), n >= 1, to the next; the first step where there is only one."""
    gaps = np.diff(steps)
    return float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else max(float(steps[0]), 1.0)


def usual_rate(steps: FloatArray, values: FloatArray) -> float:
    """Median growth of a total, (n,), for one of its `steps`, (n,), resumes left out; 0 where nothing grew."""
    gaps, growth = np.diff(steps), np.diff(values)
    grew = (gaps > 0) & (growth >= 0)
    rate = float(np.median(growth[grew] / gaps[grew])) if grew.any() else 0.0
    return rate if math.isfinite(rate) else 0.0
