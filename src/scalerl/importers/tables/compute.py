"""The counter of compute: what the user says, else the first of these axes that the log has.

Device-hours, FLOP, step times, wall clock (both in device-hours once the number of devices is known), tokens,
completions, dollars, and steps, which are no compute at all. Given `--gpus`, seconds come before FLOP.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import DataError, UsageError
from scalerl.core.units import AXES, DEVICE_HOURS, SECONDS, STEPS, Axis, counted, format_number
from scalerl.importers.tables.choice import Choice
from scalerl.importers.tables.lineage import Counts
from scalerl.importers.tables.lookup import also_there, find, none_found, numeric, unread
from scalerl.importers.tables.table import Table
from scalerl.importers.tables.vocabulary import GENERIC, NAMED, Counter, Vocabulary
from scalerl.records.curve import FloatArray

_PREFERENCE = ("device_hours", "flops", "seconds", "tokens", "rollouts", "usd", "steps")
_PREFERENCE_WITH_GPUS = ("device_hours", "seconds", "flops", "tokens", "rollouts", "usd", "steps")
_TICKS_PER_S, _EARLIEST_S = (1e9, 1e6, 1e3), 1e8
"""Finer units of a clock, and the time stamp (March 1973) above which, counted in one of them, it cannot be seconds."""
_CAVEATS = {
    SECONDS: " of wall clock; --gpus N makes them GPU-hours, with all GPUs of the run",
    STEPS: ", which are not compute: --x chooses another column",
}


@dataclass(frozen=True, slots=True, eq=False)
class ComputeColumn:
    """A counter of compute, chosen or offered."""

    text: str
    """Its columns, for the user."""
    axis: Axis
    counts: Counts | Literal["unsaid"]
    """As `vocabulary.Counter` says."""
    values: FloatArray
    """(num_rows,) as logged, NaN where absent."""
    unusable: NDArray[np.bool_]
    """(num_rows,) whether a cell is there but is no finite number."""
    scale: float = 1.0
    """Units of `axis` in one unit of `values`: not 1 only where seconds were made device-hours."""
    notes: tuple[str, ...] = ()
    is_sure: bool = False
    """Whether `counts` is what the format says, whatever the numbers suggest."""

    @property
    def if_growing(self) -> Counts:
        """What a counter that does not say what it counts is, if it grows."""
        return "clock" if self.axis == SECONDS or self.scale != 1.0 else "total"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The counter of optimizer steps."""

    name: str
    values: FloatArray
    """(num_rows,) as logged, NaN where absent."""
    begins: NDArray[np.bool_]
    """(num_rows,) whether a stretch of rows of one step, in one run, begins here."""

    def beside(self, values: FloatArray) -> FloatArray:
        """(num_rows,) `values` also where another row of their stretch has them: the time of an evaluation, logged by itself."""
        if not values.size:
            return values
        of_stretch = np.fmax.reduceat(values, np.flatnonzero(self.begins))[np.cumsum(self.begins) - 1]
        beside: FloatArray = np.where(np.isfinite(values), values, of_stretch)
        return beside


def step_of(table: Table, vocabularies: Iterable[Vocabulary], *, by: tuple[str, ...]) -> Step | None:
    """The step of each row; None if the log counts no steps. The columns `by` tell its runs apart.

    A framework's names are one counter under several names; of the common names each is a counter of its own.
    """
    for vocabulary in vocabularies:
        names = [name for name in vocabulary.step if name in table.columns and table.columns[name].numbers.size]
        if not names:
            continue
        step = table.dense(names[0])
        for name in names[1:] if vocabulary is not GENERIC else ():
            step = np.where(np.isfinite(step), step, table.dense(name))
        return Step(names[0], step, _begins(step, [table.labels[column] for column in by]))
    return None


def _begins(step: FloatArray, labels: list[NDArray[np.object_]]) -> NDArray[np.bool_]:
    """(num_rows,) where the last step that was logged changes, or a label."""
    last = step[np.maximum.accumulate(np.where(np.isfinite(step), np.arange(step.size), 0))]
    begins = np.ones(step.size, dtype=np.bool_)
    begins[1:] = np.any([cells[1:] != cells[:-1] for cells in (last, *labels)], axis=0)
    return begins


def choose_compute(table: Table, choice: Choice, vocabularies: tuple[Vocabulary, ...], step: Step | None, *, where: str) -> ComputeColumn:
    """Pick the counter of compute; a framework comes first among `vocabularies`, and `step` is what `step_of` found.

    Raises:
        UnknownNameError: `choice.x` is neither a column nor an axis that the log has.
        UsageError: `choice.x` asks for device-hours, and nobody says how many devices there were.
        DataError: `choice.x` holds no numbers, nothing looks like compute, or it is negative.
    """
    offered = _offered(table, vocabularies, choice, step)
    if step is not None:
        offered.append(ComputeColumn(f"'{step.name}'", STEPS, "total", step.values, table.unusable(step.name)))
    unread_notes = unread(table, (pattern for vocabulary in vocabularies for counter in vocabulary.compute for pattern in counter.columns))
    if choice.x is not None:
        column, notes = _asked(table, choice.x, vocabularies, offered, step, where=where)
    elif offered:
        column, notes = offered[0], unread_notes
    else:
        raise none_found(table, "compute", unread_notes, flag="--x", where=where)
    _refuse_negative(column, where=where)
    others = also_there([other.text for other in offered if other.text != column.text])
    devices, devices_note = _devices(table, choice, vocabularies[0])
    if column.axis == SECONDS and devices:
        column = replace(column, axis=DEVICE_HOURS, scale=devices / 3600.0)
        notes.append(f"compute: {column.text} x {devices:g} GPUs{devices_note}, in {column.axis.unit}{others}")
    elif choice.x == DEVICE_HOURS.name and column.axis != DEVICE_HOURS:
        raise UsageError("the log does not say on how many GPUs it ran", where=where, remedy="give --gpus N to count in GPU-hours")
    else:
        caveat = _CAVEATS.get(column.axis, "") + (devices_note if column.axis == SECONDS else "")
        notes.append(f"compute: {column.text}, in {column.axis.unit}{caveat}{others}")
    if choice.gpus is not None and column.scale == 1.0:
        notes.append(f"--gpus changes nothing: {column.text} does not count seconds")
    counts: Counts | Literal["unsaid"] = "total" if table.has_totals else column.counts
    return replace(column, counts=counts, notes=tuple(notes), is_sure=table.has_totals)


def _refuse_negative(column: ComputeColumn, *, where: str) -> None:
    """Raise DataError where something other than steps, which may begin at -1, counts below zero."""
    num_negative = int((column.values < 0).sum())
    if num_negative and column.axis != STEPS:
        least = format_number(float(np.nanmin(column.values[np.isfinite(column.values)])))
        what = f"{column.text} is below zero in {counted(num_negative, 'row')} (down to {least}), as a counter is that has overflowed"
        raise DataError(what, where=where, remedy="choose another column for compute with --x")


def _offered(table: Table, vocabularies: Iterable[Vocabulary], choice: Choice, step: Step | None) -> list[ComputeColumn]:
    """Every counter in the log that has counted something, best first, each column once."""
    preference = _PREFERENCE if choice.gpus is None else _PREFERENCE_WITH_GPUS
    counters = [counter for vocabulary in vocabularies for counter in vocabulary.compute]
    # A stable sort: within an axis, times of steps come before clocks, and a framework's names before common ones.
    counters.sort(key=lambda counter: (preference.index(counter.axis), counter.counts == "clock"))
    offered: dict[tuple[str, ...], ComputeColumn] = {}
    for counter in counters:
        names = _names(table, counter)
        column = _measure(table, counter, names, step) if names else None
        if column is not None and (np.nan_to_num(column.values, posinf=0.0) > 0).any():
            offered.setdefault(tuple(names), column)
    return list(offered.values())


def _names(table: Table, counter: Counter) -> list[str]:
    """The columns that make up the counter; none where one of them is not there."""
    names = list(dict.fromkeys(name for pattern in counter.columns for name in numeric(table) if pattern.fullmatch(name)))
    if counter.combine == "product" and len(names) < len(counter.columns):
        return []
    return names[:1] if counter.combine == "first" else names


def _measure(table: Table, counter: Counter, names: list[str], step: Step | None) -> ComputeColumn:
    """The counter's values, made of the columns `names`."""
    stacked = np.stack([table.dense(name) for name in names])
    if counter.combine == "product":
        values = stacked.prod(axis=0)
    else:
        values = np.where(np.isfinite(stacked).any(axis=0), np.nansum(stacked, axis=0), np.nan)
    subtracted = [name for pattern in counter.less for name in numeric(table) if pattern.fullmatch(name)]
    for name in subtracted:
        less = table.dense(name) if step is None else step.beside(table.dense(name))
        values = np.maximum(0.0, values - np.nan_to_num(less))
    if counter.beside in numeric(table):
        values = np.where(np.isfinite(table.dense(counter.beside)), values, np.nan)
    text = (" x " if counter.combine == "product" else " + ").join(f"'{name}'" for name in names)
    text += "".join(f" - '{name}'" for name in subtracted)
    if counter.axis == SECONDS.name and counter.counts != "per_step" and (ticks := _ticks_per_s(values)) > 1.0:
        values, text = values / ticks, f"{text} / {ticks:g}"
    unusable = np.any([table.unusable(name) for name in (*names, *subtracted)], axis=0)
    return ComputeColumn(text, AXES[counter.axis], counter.counts, values, unusable)


def _ticks_per_s(values: FloatArray) -> float:
    """In what part of a second a time stamp counts; 1 for seconds, and where `values`, (num_rows,), are no time stamps."""
    earliest = np.fmin.reduce(values, initial=np.inf)
    return next((ticks for ticks in _TICKS_PER_S if _EARLIEST_S * ticks < earliest < np.inf), 1.0)


def _asked(
    table: Table,
    name: str,
    vocabularies: Iterable[Vocabulary],
    offered: list[ComputeColumn],
    step: Step | None,
    *,
    where: str,
) -> tuple[ComputeColumn, list[str]]:
    """The column, or the first counter on the axis, that the user names."""
    if name in AXES and name not in table.columns:
        axes = (DEVICE_HOURS, SECONDS) if name == DEVICE_HOURS.name else (AXES[name],)
        for column in offered:
            if column.axis in axes:
                return column, []
    found, notes = find(table, name, flag="--x", where=where)
    counters = [counter for vocabulary in vocabularies for counter in vocabulary.compute if counter.combine == "first"]
    for counter in (*counters, *NAMED):
        if any(pattern.fullmatch(found) for pattern in counter.columns):
            return _measure(table, counter, [found], step), notes
    return ComputeColumn(f"'{found}'", Axis(found, found), "total", table.dense(found), table.unusable(found)), notes


def _devices(table: Table, choice: Choice, framework: Vocabulary) -> tuple[float | None, str]:
    """How many devices the run had, as given or as a framework's own columns tell, and what to say of it."""
    if choice.gpus is not None:
        return choice.gpus, ""
    quotient = framework.devices
    if quotient is None or any(name not in table.columns for name in (*quotient.product_of, *quotient.divided_by)):
        return None, ""
    above = np.prod([table.dense(name) for name in quotient.product_of], axis=0)
    below = np.prod([table.dense(name) for name in quotient.divided_by], axis=0)
    ratios = above[below > 0] / below[below > 0]
    ratios = ratios[np.isfinite(ratios)]
    devices = round(float(np.median(ratios))) if ratios.size else 0
    if devices <= 0:
        return None, ""
    if quotient.of == "trainer":
        return None, f", of which {devices:g} train, as {framework.name} logs its throughput"
    return devices, f" (as {framework.name} logs its throughput)"
