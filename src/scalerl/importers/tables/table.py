"""A log as columns of numbers: sparse, in the order of the log, no larger than the log itself.

A cell that is blank, null or missing is absent, which is not zero. A cell that is there but is no number (text, `NaN`,
`inf`) is kept as NaN or infinite, so that whoever uses the column can count what it leaves out.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scalerl.records.curve import FloatArray

_LONGEST_NUMBER = 64
"""Characters; a longer text is not tried as a number."""
_SHOWN = 40
"""Characters of a text that are kept to show what a column holds."""
_MOST_KINDS = 32
"""Texts that differ; a column of more tells nothing apart, and its cells are not kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The cells of one column that are there."""

    rows: NDArray[np.int64]
    """(n,) row of each cell, never decreasing."""
    values: FloatArray
    """(n,) its number; not finite where the cell holds none."""
    text: str = ""
    """The first cell that is text, shortened; empty if there is none."""
    kinds: NDArray[np.object_] | None = None
    """(n,) the cells of a column of a few texts or truth values, and of nothing else."""

    @property
    def numbers(self) -> FloatArray:
        """The finite numbers, in order."""
        return self.values[np.isfinite(self.values)]

    def at(self, chosen: NDArray[np.bool_]) -> Column:
        """The cells where `chosen`, (n,), is true."""
        kinds = None if self.kinds is None else self.kinds[chosen]
        return replace(self, rows=self.rows[chosen], values=self.values[chosen], kinds=kinds)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What an importer makes of a log."""

    num_rows: int
    columns: Mapping[str, Column]
    labels: Mapping[str, NDArray[np.object_]]
    """(num_rows,) for each column kept as text: its cells as written, "" where absent."""
    by: tuple[str, ...] = ()
    """Label columns that tell the runs in this log apart, if the format says so."""
    notes: tuple[str, ...] = ()
    """What the importer had to leave out, in sentences for the user."""
    has_totals: bool = False
    """Whether the format itself says that its counters of compute are running totals, so that nothing is told from their numbers."""

    def dense(self, name: str) -> FloatArray:
        """(num_rows,) a column with NaN where its cell is absent; the last wins where a row has two."""
        column = self.columns[name]
        dense = np.full(self.num_rows, np.nan)
        dense[column.rows] = column.values
        return dense

    def unusable(self, name: str) -> NDArray[np.bool_]:
        """(num_rows,) whether a column's cell is there but is no finite number."""
        column = self.columns[name]
        unusable = np.zeros(self.num_rows, dtype=np.bool_)
        unusable[column.rows[~np.isfinite(column.values)]] = True
        return unusable

    def where(self, keep: NDArray[np.bool_]) -> Table:
        """The rows where `keep`, (num_rows,), is true."""
        new_row = np.cumsum(keep) - 1
        columns = {}
        for name, column in self.columns.items():
            kept = keep[column.rows]
            if kept.any():
                columns[name] = replace(column.at(kept), rows=new_row[column.rows[kept]])
        labels = {name: cells[keep] for name, cells in self.labels.items()}
        return replace(self, num_rows=int(keep.sum()), columns=columns, labels=labels)


class TableBuilder:
    """Collects a table row by row at 16 bytes a cell, 24 where it is one of a few texts."""

    def __init__(self, labels: AbstractSet[str] = frozenset()) -> None:
        self._growing: dict[str, _GrowingColumn] = {}
        self._labels: dict[str, list[str]] = {name: [] for name in labels}
        self._num_rows = 0

    def __len__(self) -> int:
        return self._num_rows

    def add(self, cells: Iterable[tuple[str, object]]) -> None:
        """Append a row of (column, cell): numbers, texts, booleans; None and "" are absent, other things ignored."""
        growing, labels, row = self._growing, self._labels, self._num_rows
        for name, cell in cells:
            if type(cell) is float:  # the most frequent by far
                number = cell
            elif cell is None or cell == "" or not isinstance(cell, (int, float, str)):
                continue
            else:
                number = number_of(cell)
            column = growing.get(name)
            if column is None:
                column = growing[name] = _GrowingColumn()
            column.rows.append(row)
            column.values.append(number)
            if number != number and type(cell) is not float:
                column.add_text(cell)
            if name in labels:
                self._label(name, str(cell))
        self._num_rows += 1

    def build(self, *, by: tuple[str, ...] = (), notes: Iterable[str] = ()) -> Table:
        """The table of the rows so far."""
        columns = {
            name: Column(np.frombuffer(column.rows, np.int64), np.frombuffer(column.values, np.float64), column.text, column.kinds())
            for name, column in self._growing.items()
        }
        labels = {}
        for name, cells in self._labels.items():
            if name in columns:
                labels[name] = np.array(cells + [""] * (self._num_rows - len(cells)), dtype=np.object_)
        return Table(self._num_rows, columns, labels, by=by, notes=tuple(notes))

    def _label(self, name: str, text: str) -> None:
        cells = self._labels[name]
        cells.extend([""] * (self._num_rows + 1 - len(cells)))
        cells[self._num_rows] = text


@dataclass(slots=True)
class _GrowingColumn:
    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    text: str = ""
    texts: list[str] = field(default_factory=list)
    """The cells that are no numbers, until there are too many kinds of them."""
    known: dict[str, str] = field(default_factory=dict)
    """One object for all equal texts."""

    def add_text(self, cell: object) -> None:
        if not self.text and isinstance(cell, str):
            self.text = cell[:_SHOWN]
        if len(self.known) <= _MOST_KINDS:
            self.texts.append(self.known.setdefault(str(cell), str(cell)))

    def kinds(self) -> NDArray[np.object_] | None:
        is_of_few = len(self.texts) == len(self.rows) and len(self.known) <= _MOST_KINDS
        return np.array(self.texts, dtype=np.object_) if is_of_few else None


def number_of(cell: float | str) -> float:
    """The number in a cell; NaN for a text or a truth value, infinite where it exceeds a double."""
    if type(cell) is float:
        return cell
    if isinstance(cell, bool) or (isinstance(cell, str) and (len(cell) > _LONGEST_NUMBER or "_" in cell)):
        return math.nan
    try:
        return float(cell)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf
