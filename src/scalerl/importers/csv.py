"""CSV with a header line, separated by commas, semicolons or tabs; also the chart export of Weights & Biases.

    step,gpu_hours,pass_rate          "Step","RUN - METRIC","RUN - METRIC__MIN","RUN - METRIC__MAX", ...

The chart export has three columns for each run. It is read as one row for each run and step, with the run's name as a
label: split from the metric at the LAST " - ", since run names hold that separator too.
"""

from __future__ import annotations

import csv
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path

from scalerl.core.errors import DataError
from scalerl.core.units import counted
from scalerl.importers import Importer, Sniff, Table, TableBuilder
from scalerl.importers._runs import RUN
from scalerl.importers.tables.table import number_of

_DELIMITERS = ",;\t"
_UNFINISHED = (".", "-", "+", "e", "E")
"""How a number ends that was cut in its middle, where it can be told."""
_END = "\x04"
"""Stands behind the last line."""
_SEPARATOR, _MIN, _MAX = " - ", "__MIN", "__MAX"


class Csv(Importer):
    """Comma-, semicolon- or tab-separated values."""

    example = {"log.csv": b"step,gpu_hours,eval/accuracy\n1,10,0.21\n2,20,0.33\n3,30,0.41\n"}

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """Text whose first line names columns."""
        text = head.lstrip(b"\xef\xbb\xbf \r\n\t").rstrip(b"\0")
        if path.is_dir() or b"\0" in text or text[:1] in (b"", b"{", b"[", b"<"):
            return Sniff.NO
        if path.suffix.lower() in (".csv", ".tsv"):
            return Sniff.LIKELY
        first_line = text.partition(b"\n")[0].decode("utf-8", errors="replace")
        return Sniff.PLAUSIBLE if any(delimiter in first_line for delimiter in _DELIMITERS) else Sniff.NO

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """Every row that fits the header; what does not fit is counted.

        Raises:
            DataError: there is no header line, two columns have one name, or a quote is never closed.
        """
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            first_line = next((line for line in file if line.strip()), "")
            file.seek(0)
            return _table(_records(file, path, delimiter=max(_DELIMITERS, key=first_line.count)), labels, path)


def _records(lines: Iterable[str], path: Path, *, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(last line, cells) of each record; one without cells is a blank line.

    Raises:
        DataError: a quote is never closed, so that the lines after it are no records.
    """
    # Only a machine that went down leaves NUL bytes, and only behind the last line. The end's mark lands in a quote left open.
    reader = csv.reader(chain((line.rstrip("\0") for line in lines), [_END]), delimiter=delimiter)
    last_line = 0
    try:
        for cells in reader:
            if cells == [_END]:
                return
            if cells and cells[-1].endswith(_END):
                if reader.line_num - last_line > 2:
                    raise DataError(f"a quote on line {last_line + 1} is never closed", where=str(path), remedy="remove or close it")
                yield last_line + 1, [*cells[:-1], cells[-1].removesuffix(_END)]
                return
            last_line = reader.line_num
            yield last_line, cells
    except csv.Error as error:
        raise DataError(
            f"line {reader.line_num} is no CSV ({error})", where=str(path), remedy="check the quotes there and that it is a text table"
        ) from None


def _table(records: Iterator[tuple[int, list[str]]], labels: AbstractSet[str], path: Path) -> Table:
    header = _header(next((cells for _, cells in records if any(map(str.strip, cells))), []), path)
    notes: list[str] = []
    rows = _fitting_rows(records, len(header), notes, is_ended=_ends_with_a_line(path))
    if _is_wandb_chart(header):
        table = TableBuilder({*labels, RUN})
        for cells in _wandb_chart_rows(header, rows):
            table.add(cells)
        return table.build(by=(RUN,), notes=notes)
    table = TableBuilder(labels)
    for row in rows:
        table.add(zip(header, row, strict=False))
    return table.build(notes=notes)


def _ends_with_a_line(path: Path) -> bool:
    """Whether the last line has an end; a killed program may have left it in the middle of a number."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) in b"\r\n"


def _header(cells: list[str], path: Path) -> list[str]:
    """The columns' names; one without a name (an index) is called by its place."""
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(cells, start=1)]
    if all(math.isfinite(number_of(name)) for name in names):
        raise DataError("the first line names no columns", where=str(path), remedy="give the file a header line")
    ((most_frequent, times),) = Counter(names).most_common(1)
    if times > 1:
        raise DataError(f"{times} columns are called '{most_frequent}'", where=str(path), remedy="rename them in the header line")
    return names


def _fitting_rows(records: Iterator[tuple[int, list[str]]], num_cells: int, notes: list[str], *, is_ended: bool) -> Iterator[list[str]]:
    """The rows that can be told: a short one lacks its last cells, a long one is left out, a short last line was cut.

    `is_ended` tells whether the last line has an end; `notes` receives, when all is read, what did not fit.
    """
    num_ragged = first_ragged = line = 0
    last: list[str] = []
    row: list[str] = []
    for line, row in records:
        if last:
            yield last
        last = row[:num_cells] if not any(row[num_cells:]) else []
        if row and len(row) != num_cells:
            num_ragged, first_ragged = num_ragged + 1, first_ragged or line
    if (last and (len(last) < num_cells or (not is_ended and last[-1].endswith(_UNFINISHED)))) or not (row or is_ended):
        num_ragged -= 0 < len(last) < num_cells
        notes.append(f"line {line} left out: the last line was cut short")
    elif last:
        yield last
        if not is_ended:
            notes.append(f"line {line} has no end: if it was cut short, its last number is wrong")
    if num_ragged:
        notes.append(
            f"{counted(num_ragged, 'line')} with more or fewer cells than the header's {num_cells}, the first is line {first_ragged}"
        )


def _is_wandb_chart(header: list[str]) -> bool:
    names = frozenset(header)
    return any(_SEPARATOR in name and {f"{name}{_MIN}", f"{name}{_MAX}"} <= names for name in header)


def _wandb_chart_rows(header: list[str], rows: Iterable[list[str]]) -> Iterator[Iterable[tuple[str, str]]]:
    """One row for each run that logged something at a step: the step, the run, and its metrics."""
    columns_of: dict[str, list[tuple[int, str]]] = {}
    for place, name in enumerate(header):
        run, separator, metric = name.rpartition(_SEPARATOR)
        if separator:
            columns_of.setdefault(run, []).append((place, metric))
    for row in rows:
        for run, columns in columns_of.items():
            cells = [(metric, row[place]) for place, metric in columns if place < len(row) and row[place]]
            if cells:
                yield [(header[0], row[0]), (RUN, run), *cells]
