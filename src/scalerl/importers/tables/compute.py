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

from scalerl.core.errors import UsageError
from scalerl.core.units import AXES, DEVICE_HOURS, SECONDS, STEPS, Axis
from scalerl.importers.tables.choice import Choice
from scalerl.importers.tables.lineage import Counts
from scalerl.importers.tables.lookup import also_there, find, none_found, numeric
from scalerl.importers.tables.table import Table
from scalerl.importers.tables.vocabulary import GENERIC, NAMED, Counter, Vocabulary
from scalerl.records.curve import FloatArray

_PREFERENCE = ("device_hours", "flops", "seconds", "tokens", "rollouts", "usd", "steps")
_PREFERENCE_WITH_GPUS = ("device_hours", "seconds", "flops", "tokens", "rollouts", "usd", "steps")
_CAVEATS = {SECONDS: " of wall clock; --gpus N makes them GPU-hours", STEPS: ", which are not compute: --x chooses another column"}


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

    @property
    def if_growing(self) -> Counts:
        """What a counter that does not say what it counts is, if it grows."""
        return "clock" if self.axis == SECONDS or self.scale != 1.0 else "total"


def step_of(table: Table, vocabularies: Iterable[Vocabulary]) -> tuple[str, FloatArray] | None:
    """Name and values, (num_rows,) with NaN where absent, of the step; None if the log counts no steps.

    A framework's names are one counter under several names; of the common names each is a counter of its own.
    """
    for vocabulary in vocabularies:
        names = [name for name in vocabulary.step if name in table.columns and table.columns[name].numbers.size]
        if not names:
            continue
        step = table.dense(names[0])
        for name in names[1:] if vocabulary is not GENERIC else ():
            step = np.where(np.isfinite(step), step, table.dense(name))
        return names[0], step
    return None


def choose_compute(
    table: Table, choice: Choice, vocabularies: tuple[Vocabulary, ...], step: tuple[str, FloatArray] | None, *, where: str
) -> ComputeColumn:
    """Pick the counter of compute; a framework comes first among `vocabularies`, and `step` is what `step_of` found.

    Raises:
        UnknownNameError: `choice.x` is neither a column nor an axis that the log has.
        UsageError: `choice.x` asks for device-hours, and nobody says how many devices there were.
        DataError: `choice.x` holds no numbers, or nothing looks like compute.
    """
    offered = _offered(table, vocabularies, choice)
    if step is not None:
        offered.append(ComputeColumn(f"'{step[0]}'", STEPS, "total", step[1], table.unusable(step[0])))
    if choice.x is not None:
        column, notes = _asked(table, choice.x, vocabularies, offered, where=where)
        others = ""
    elif offered:
        column, notes = offered[0], []
        others = also_there([other.text for other in offered[1:]])
    else:
        raise none_found(table, "compute", flag="--x", where=where)
    devices, devices_note = _devices(table, choice, vocabularies[0])
    if column.axis == SECONDS and devices:
        column = replace(column, axis=DEVICE_HOURS, scale=devices / 3600.0)
        notes.append(f"compute: {column.text} x {devices:g} GPUs{devices_note}, in {column.axis.unit}{others}")
    elif choice.x == DEVICE_HOURS.name and column.axis != DEVICE_HOURS:
        raise UsageError("the log does not say on how many GPUs it ran", where=where, remedy="give --gpus N to count in GPU-hours")
    else:
        notes.append(f"compute: {column.text}, in {column.axis.unit}{_CAVEATS.get(column.axis, '')}{others}")
    if choice.gpus is not None and column.scale == 1.0:
        notes.append(f"--gpus changes nothing: {column.text} does not count seconds")
    return replace(column, notes=tuple(notes))


def _offered(table: Table, vocabularies: Iterable[Vocabulary], choice: Choice) -> list[ComputeColumn]:
    """Every counter in the log that has counted something, best first, each column once."""
    preference = _PREFERENCE if choice.gpus is None else _PREFERENCE_WITH_GPUS
    counters = [counter for vocabulary in vocabularies for counter in vocabulary.compute]
    # A stable sort: within an axis, times of steps come before clocks, and a framework's names before common ones.
    counters.sort(key=lambda counter: (preference.index(counter.axis), counter.counts == "clock"))
    offered: dict[str, ComputeColumn] = {}
    for counter in counters:
        names = _names(table, counter)
        column = _measure(table, counter, names) if names else None
        if column is not None and (np.nan_to_num(column.values, posinf=0.0) > 0).any():
            offered.setdefault(names[0], column)
    return list(offered.values())


def _names(table: Table, counter: Counter) -> list[str]:
    """The columns that make up the counter; none where one of them is not there."""
    names = list(dict.fromkeys(name for pattern in counter.columns for name in numeric(table) if pattern.fullmatch(name)))
    if counter.combine == "product" and len(names) < len(counter.columns):
        return []
    return names[:1] if counter.combine == "first" else names


def _measure(table: Table, counter: Counter, names: list[str]) -> ComputeColumn:
    """The counter's values, made of the columns `names`."""
    stacked = np.stack([table.dense(name) for name in names])
    if counter.combine == "product":
        values = stacked.prod(axis=0)
    else:
        values = np.where(np.isfinite(stacked).any(axis=0), np.nansum(stacked, axis=0), np.nan)
    subtracted = [name for pattern in counter.less for name in numeric(table) if pattern.fullmatch(name)]
    for name in subtracted:
        values = values - np.nan_to_num(table.dense(name))
    if counter.beside in numeric(table):
        values = np.where(np.isfinite(table.dense(counter.beside)), values, np.nan)
    text = (" x " if counter.combine == "product" else " + ").join(f"'{name}'" for name in names)
    text += "".join(f" - '{name}'" for name in subtracted)
    unusable = np.any([table.unusable(name) for name in (*names, *subtracted)], axis=0)
    return ComputeColumn(text, AXES[counter.axis], counter.counts, values, unusable)


def _asked(
    table: Table, name: str, vocabularies: Iterable[Vocabulary], offered: list[ComputeColumn], *, where: str
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
            return _measure(table, counter, [found]), notes
    return ComputeColumn(f"'{found}'", Axis(found, found), "total", table.dense(found), table.unusable(found)), notes


def _devices(table: Table, choice: Choice, framework: Vocabulary) -> tuple[float | None, str]:
    """How many devices the run had, as given or as a framework's own columns tell."""
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
    return (devices, f" (as {framework.name} logs its throughput)") if devices > 0 else (None, "")
