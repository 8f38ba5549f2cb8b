"""Logs that mix several runs, or rewards of several data sets, are refused until somebody tells them apart.

Columns of the usual names do (`vocabulary.toml`: `runs`, `parts`), whatever else the log holds. Any other column does where
unlike rewards are logged at one step, again and again, and it is another for each of them. A resume is something else:
it goes back to a step, and does not stay at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import DataError
from scalerl.importers.tables.reward import RewardColumn
from scalerl.importers.tables.table import Table
from scalerl.importers.tables.vocabulary import GENERIC
from scalerl.records.curve import FloatArray

_OFTEN = 0.2
"""More than this share of the rewards are logged at the step of another."""
_MOST_RESUMES = 2
"""A run that goes on from the step that it had logged last has that step twice: so often at most in a short log."""


def refuse_mixed_runs(table: Table, *, where: str) -> None:
    """Raise DataError where a column of a usual name tells several runs apart."""
    for column in GENERIC.runs:
        if column in table.labels:
            _refuse_kinds(table.labels[column], column, of="the log is of {} runs", where=where)


def refuse_mixed_parts(
    table: Table, reward: RewardColumn, *, rows: NDArray[np.int64], at: FloatArray, by: tuple[str, ...], where: str
) -> None:
    """Raise DataError where one run has rewards of several data sets or splits in one column.

    Args:
        rows: (n,) of the run.
        at: (n,) step, or where none is logged compute, when each row was logged.
        by: columns that tell the curves apart already.
    """
    rewarded = np.isfinite(reward.values[rows])
    rows, at = rows[rewarded], at[rewarded]
    for column in GENERIC.parts:
        if column in table.labels and column not in by:
            _refuse_kinds(table.labels[column][rows], column, of="the reward is of {} data sets", where=where)
    stays = np.diff(at) == 0
    unlike = int((stays & (np.diff(reward.values[rows]) != 0)).sum())
    if unlike > max(_OFTEN * rows.size, _MOST_RESUMES):
        stretch = np.append(0, np.cumsum(~stays))
        for column, kinds in _kinds(table, rows, without=(*by, reward.metric)):
            if len(set(zip(stretch.tolist(), kinds, strict=True))) == rows.size:
                of = f"'{reward.metric}' has up to {{}} values at a step"
                _refuse_kinds(kinds, column, of=of, where=where)


def _kinds(table: Table, rows: NDArray[np.int64], *, without: Iterable[str]) -> Iterator[tuple[str, NDArray[np.object_]]]:
    """The columns that may tell rows apart, with their cells in `rows`: of few texts, then of whole numbers."""
    columns = {name: column for name, column in table.columns.items() if name not in without}
    for name, column in columns.items():
        if column.kinds is not None:
            cells = np.full(table.num_rows, "", dtype=np.object_)
            cells[column.rows] = column.kinds
            yield name, cells[rows]
    for name in columns:
        numbers = table.dense(name)[rows]
        if (numbers == np.floor(numbers)).all():
            yield name, np.array([f"{number:.0f}" for number in numbers], dtype=np.object_)


def _refuse_kinds(cells: NDArray[np.object_], column: str, *, of: str, where: str) -> None:
    """Raise DataError where the labels `cells`, (n,), of a column are of several kinds, as `of` says with their number."""
    values = sorted(set(cells) - {""})
    if 1 < len(values) <= cells.size / 2:
        what = f"{of.format(len(values))}, which the column '{column}' tells apart"
        remedy = f"--by {column} makes a curve of each, --where {column}={values[0]} picks one"
        raise DataError(what, where=where, remedy=remedy)
