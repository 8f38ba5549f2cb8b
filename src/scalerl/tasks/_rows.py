"""Rows of text from a JSONL, CSV or Parquet file, told apart by its suffix."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scalerl.core.errors import DataError, UsageError, unknown_name

_Row = dict[str, Any]
_TOO_MANY = "\0"
"""Stands for a column that no header can name."""


def rows(path: Path, *, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The cells of `columns`, row by row; numbers are written as text.

    Raises:
        UsageError: the path is no file of a known suffix.
        UnknownNameError: a column is not there.
        DataError: the file is missing, empty or damaged, or a cell holds no text.
    """
    read = _reader(path)
    number = 0
    try:
        for number, row in enumerate(read(path), start=1):
            yield tuple(_cell(row, column, where=f"{path}: row {number}") for column in columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"it cannot be read ({error})", where=str(path), remedy="check that it is the file that you mean") from None
    if not number:
        raise DataError("it holds no rows", where=str(path), remedy="give a file with a prompt in each row")


def _reader(path: Path) -> Callable[[Path], Iterator[_Row]]:
    if path.is_file():
        if path.suffix.lower() in _READERS:
            return _READERS[path.suffix.lower()]
        raise UsageError(f"files called *{path.suffix} are not read", where=str(path), remedy="give one of " + ", ".join(_READERS))
    if path.is_dir() or not path.suffix:
        raise UsageError(
            "data set folders and names of the hub are not read yet", where=str(path), remedy="give one file: " + ", ".join(_READERS)
        )
    raise DataError("there is no such file", where=str(path), remedy="check task.path, which counts from the folder you are in")


def _cell(row: _Row, column: str, *, where: str) -> str:
    if column not in row:
        raise unknown_name("column", column, row, where=where)
    cell = row[column]
    if isinstance(cell, bool) or not isinstance(cell, (str, int, float)) or not str(cell).strip():
        raise DataError(f"its {column} holds no text", where=where, remedy="mend or remove the row, or choose another column")
    return str(cell)


def _json_lines(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield _object(line, where=f"{path}: line {number}")


def _object(line: str, *, where: str) -> _Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise DataError("it holds no JSON object", where=where, remedy="write one object a line")
    return row


def _csv(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.DictReader(file, restkey=_TOO_MANY, strict=True), start=1):
            if _TOO_MANY in row:
                raise DataError(f"row {number} has more cells than the header", where=str(path), remedy="put cells with commas in quotes")
            yield row


def _parquet(path: Path) -> Iterator[_Row]:
    try:
        import pyarrow as pa  # noqa: PLC0415  (an extra)
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            f"Parquet files need the package pyarrow, which is not installed ({error})",
            where=str(path),
            remedy="install it with: pip install 'scalerl[train]'",
        ) from None
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise DataError(f"it is no Parquet file ({error})", where=str(path), remedy="write it again") from None


_READERS = {".jsonl": _json_lines, ".csv": _csv, ".parquet": _parquet}
