"""TensorBoard's events: the scalars of many records at once.

    Event {wall_time = 1, step = 2, file_version = 3, summary = 5 {value = 1 {tag = 1, simple_value = 2, tensor = 8}}}

Records of one length mostly have one *layout*: the same fields at the same places. The first is walked field by field; all
others that agree with it in every byte but those of numbers, names and ignored contents are read at its places, as columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scalerl.importers.framing.crc32c import Bytes
from scalerl.importers.framing.damage import Damage
from scalerl.importers.framing.protobuf import BYTES, FIXED32, FIXED64, VARINT, MalformedError, fields, tag_of, varint
from scalerl.importers.framing.tfrecord import Chunk
from scalerl.records.curve import FloatArray

_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = tag_of(1, FIXED64), tag_of(2, VARINT), tag_of(3, BYTES), tag_of(5, BYTES)
_VALUE = tag_of(1, BYTES)
_NAME, _SIMPLE_VALUE, _TENSOR = tag_of(1, BYTES), tag_of(2, FIXED32), tag_of(8, BYTES)
_DTYPE, _CONTENT = tag_of(1, VARINT), tag_of(4, BYTES)
_FIXED_WIDTH = {tag_of(5, FIXED32): "<f4", tag_of(5, BYTES): "<f4", tag_of(6, FIXED64): "<f8", tag_of(6, BYTES): "<f8"}
"""A tensor's float_val and double_val, alone or packed."""
_INTEGERS = {tag_of(7, VARINT), tag_of(7, BYTES), tag_of(10, VARINT), tag_of(10, BYTES)}
"""A tensor's int_val and int64_val, alone or packed."""
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}
"""Number formats of a tensor's raw content by its dtype."""
_ANY, _CONTINUES, _ALL = 0x00, 0x80, 0xFF
"""Bits of a byte that a layout fixes: none, whether a varint goes on, all."""


@dataclass(frozen=True, slots=True, eq=False)
class ScalarEvents:
    """Events that carry scalars, in the order of their files; those of one step one after the other count as one, as old as the first."""

    started: float | None
    """Wall time at which the writer was made, in seconds since 1970, if its first record is there."""
    wall_time: FloatArray
    """(n,) seconds since 1970."""
    step: FloatArray
    """(n,) whole numbers."""
    cells: dict[str, tuple[NDArray[np.int64], FloatArray]]
    """For each name: the events that carry it, (m,) never decreasing, and its values, (m,)."""

    def __len__(self) -> int:
        return self.step.size

    def ordered(self, order: NDArray[np.int64]) -> ScalarEvents:
        """The events `order[0]`, `order[1]` ..."""
        if (np.diff(order) == 1).all():
            return self
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        cells = {}
        for name, (events, values) in self.cells.items():
            moved = place[events]
            by_place = np.argsort(moved, kind="stable")
            cells[name] = (moved[by_place], values[by_place])
        return ScalarEvents(self.started, self.wall_time[order], self.step[order], cells)


@dataclass(frozen=True, slots=True)
class _Number:
    """Where a number lies in a record, and its format."""

    start: int
    stop: int
    format: str
    """As NumPy writes it, or `varint`."""

    def read(self, columns: Bytes) -> FloatArray:
        """(n,) the number in each of the records whose bytes are `columns`, (length, n)."""
        content = columns[self.start : self.stop]
        if self.format != "varint":
            return np.ascontiguousarray(content.T).view(self.format)[:, 0].astype(np.float64)
        value = np.zeros(columns.shape[1], np.uint64)
        for place, column in enumerate(content):
            value |= (column & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * place)
        return value.view(np.int64).astype(np.float64)


@dataclass(slots=True)
class _Layout:
    """Where a record keeps what."""

    fixed: Bytes
    """(length,) bits of each byte in which records of this layout agree."""
    wall_time: _Number | None = None
    step: _Number | None = None
    starts_a_file: bool = False
    scalars: list[tuple[slice, _Number]] = field(default_factory=list)
    """The name and the number of each scalar."""


def joined(parts: Iterable[ScalarEvents]) -> ScalarEvents:
    """The events of all `parts`, one after the other."""
    started, wall_times, steps, num_events = None, [np.empty(0)], [np.empty(0)], 0
    found: dict[str, list[tuple[NDArray[np.int64], FloatArray]]] = {}
    for part in parts:
        started = part.started if started is None else started
        wall_times.append(part.wall_time)
        steps.append(part.step)
        for name, (events, values) in part.cells.items():
            found.setdefault(name, []).append((events + num_events, values))
        num_events += len(part)
    # What is joined is let go at once: a long file is in memory once, and one of its columns twice.
    cells = {name: _concatenated(found.pop(name)) for name in list(found)}
    return ScalarEvents(started, np.concatenate(wall_times), np.concatenate(steps), cells)


def scalars_of(chunk: Chunk, damage: Damage) -> ScalarEvents:
    """The events in `chunk` that carry scalars; `damage` receives records that are no events."""
    wall_time, step = np.zeros(chunk.num_places), np.zeros(chunk.num_places)
    found: dict[str, list[tuple[NDArray[np.int64], FloatArray]]] = {}
    started = None
    for places, layout, columns in _by_layout(chunk, damage):
        if layout.wall_time is not None:
            wall_time[places] = layout.wall_time.read(columns)
        if layout.step is not None:
            step[places] = layout.step.read(columns)
        if layout.starts_a_file:
            started = float(wall_time[places[0]])
        for name_bytes, number in layout.scalars:
            values = number.read(columns)
            for name, named in _by_name(columns[name_bytes]):
                found.setdefault(name, []).append((places[named], values[named]))
    carries = np.zeros(chunk.num_places, np.bool_)
    cells = {name: _sorted(*_concatenated(parts)) for name, parts in found.items()}
    for places, _ in cells.values():
        carries[places] = True
    carriers = np.flatnonzero(carries)
    begins = np.diff(step[carriers], prepend=np.nan) != 0
    first, event_at = carriers[begins], np.empty(chunk.num_places, np.int64)
    event_at[carriers] = np.cumsum(begins) - 1
    return ScalarEvents(
        started, wall_time[first], step[first], {name: (event_at[places], values) for name, (places, values) in cells.items()}
    )


def _concatenated(parts: list[tuple[NDArray[np.int64], FloatArray]]) -> tuple[NDArray[np.int64], FloatArray]:
    return np.concatenate([events for events, _ in parts]), np.concatenate([values for _, values in parts])


def _sorted(places: NDArray[np.int64], values: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    order = np.argsort(places, kind="stable")
    return places[order], values[order]


def _by_layout(chunk: Chunk, damage: Damage) -> Iterator[tuple[NDArray[np.int64], _Layout, Bytes]]:
    """(places, layout, columns) of the records of each layout that occurs."""
    for places, columns in chunk.groups:
        while places.size:
            try:
                layout = _layout_of(columns[:, 0].tobytes())
            except MalformedError:
                damage.num_bad += 1
                places, columns = places[1:], columns[:, 1:]
                continue
            agrees = _like_the_first(columns, layout.fixed)
            yield (places, layout, columns) if agrees.all() else (places[agrees], layout, columns[:, agrees])
            places, columns = places[~agrees], columns[:, ~agrees]


def _by_name(columns: Bytes) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """(name, where it stands) for each of the names whose bytes are `columns`, (length, n)."""
    fixed = np.full(len(columns), _ALL, np.uint8)
    unknown = np.ones(columns.shape[1], np.bool_)
    while unknown.any():
        first = int(unknown.argmax())
        named = _like_the_first(columns[:, first:], fixed)
        named = np.pad(named, (first, 0))
        unknown &= ~named
        yield columns[:, first].tobytes().decode("utf-8", errors="replace"), named


def _like_the_first(columns: Bytes, fixed: Bytes) -> NDArray[np.bool_]:
    """(n,) whether a record agrees with the first in the bits of `fixed`, (length,)."""
    agrees = np.ones(columns.shape[1], np.bool_)
    for place in np.flatnonzero(fixed):
        agrees &= (columns[place] ^ columns[place, 0]) & fixed[place] == 0
    return agrees


def _layout_of(record: bytes) -> _Layout:
    """The layout of one event.

    Raises:
        MalformedError: it is none.
    """
    layout = _Layout(np.full(len(record), _ALL, np.uint8))
    for tag, start, stop in fields(record):
        if tag == _WALL_TIME:
            layout.wall_time = _Number(start, stop, "<f8")
        elif tag == _STEP:
            layout.step = _Number(start, stop, "varint")
        elif tag == _SUMMARY:
            for value_tag, value_start, value_stop in fields(record, start, stop):
                if value_tag == _VALUE:
                    _add_scalar(layout, record, slice(value_start, value_stop))
                else:
                    _leave_open(layout, value_tag, value_start, value_stop)
            continue
        layout.starts_a_file |= tag == _FILE_VERSION
        _leave_open(layout, tag, start, stop)
    return layout


def _leave_open(layout: _Layout, tag: int, start: int, stop: int) -> None:
    """Let records of this layout differ in the value of a field."""
    layout.fixed[start:stop] = _CONTINUES if tag & 7 == VARINT else _ANY


def _add_scalar(layout: _Layout, record: bytes, value: slice) -> None:
    """Take in a summary's value, if it is one number that has a name."""
    name, number = None, None
    for tag, start, stop in fields(record, value.start, value.stop):
        if tag == _TENSOR:
            number = _number_in_tensor(layout, record, slice(start, stop))
            continue
        if tag == _NAME:
            name = slice(start, stop)
        elif tag == _SIMPLE_VALUE:
            number = _Number(start, stop, "<f4")
        _leave_open(layout, tag, start, stop)
    if name is not None and number is not None:
        layout.scalars.append((name, number))


def _number_in_tensor(layout: _Layout, record: bytes, tensor: slice) -> _Number | None:
    """The number that makes up a tensor; None where it holds more than one, none, or something else."""
    dtype, number, content = 0, None, None
    for tag, start, stop in fields(record, tensor.start, tensor.stop):
        if tag == _DTYPE:
            dtype, _ = varint(record, start)
            continue
        _leave_open(layout, tag, start, stop)
        if tag in _FIXED_WIDTH:
            number = _Number(start, stop, _FIXED_WIDTH[tag])
        elif tag in _INTEGERS and stop > start and varint(record, start)[1] == stop:
            number = _Number(start, stop, "varint")
            layout.fixed[start:stop] = _CONTINUES
        elif tag == _CONTENT:
            content = (start, stop)
    if content is not None and dtype in _DTYPES:
        number = _Number(*content, _DTYPES[dtype])
    if number is None or number.format == "varint" or number.stop - number.start == np.dtype(number.format).itemsize:
        return number
    return None
