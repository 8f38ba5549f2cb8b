"""The evaluations of several data sets by transformers' trainers, TRL's among them, told apart.

A dictionary of data sets is evaluated one by one, each in a row of its own. The trainer always logs how long that took, as
`eval_math_runtime`, which names the data set. Its other metrics are `eval_math_accuracy`, but TRL calls its own `eval_reward`
whatever was evaluated: they are moved to `eval_math_reward` here. Trackers write `eval/` for `eval_`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scalerl.importers.tables.table import Table

_STEMS = ("eval_", "eval/")
_TIMED = re.compile(r"(?P<prefix>eval[_/](?P<data_set>.+)_)(?:runtime|samples_per_second|steps_per_second)")
_NONE, _SEVERAL = -1, -2


def data_sets_in(columns: Iterable[str]) -> dict[str, str]:
    """The data sets that a trainer has evaluated, by the beginning of their columns' names, longest first; none where it names none."""
    timed = {match["prefix"]: match["data_set"] for match in map(_TIMED.fullmatch, columns) if match}
    return {prefix: timed[prefix] for prefix in sorted(timed, key=len, reverse=True)}


def without_data_set(name: str, data_sets: dict[str, str]) -> tuple[str, str]:
    """A column's name as it would be with one data set, and which of the `data_sets` it names: `eval_accuracy` and `math`."""
    prefix = next((prefix for prefix in data_sets if name.startswith(prefix)), None)
    return (name, "") if prefix is None else (_stem(prefix) + name.removeprefix(prefix), data_sets[prefix])


def told_apart(table: Table) -> Table:
    """`table` with every metric that does not name its data set in the column of the one that its row is of.

    Where a row is of several, as in a format that has one row for each step, the metric is left out and a note says so.
    """
    data_sets = data_sets_in(table.columns)
    if len(data_sets) < 2:
        return table
    row_is_of = _data_set_of_rows(table, data_sets)
    is_bare = {name: name.startswith(_STEMS) and not name.startswith(tuple(data_sets)) for name in table.columns}
    columns = {name: column for name, column in table.columns.items() if not is_bare[name]}
    mixed = []
    for name in (name for name in table.columns if is_bare[name]):
        column = table.columns[name]
        is_of = row_is_of[column.rows]
        names = {_NONE: name} | {place: prefix + name.removeprefix(_stem(name)) for place, prefix in enumerate(data_sets)}
        for place in names.keys() & set(is_of.tolist()):
            mine = is_of == place
            columns.setdefault(names[place], column.at(mine))
        if (is_of == _SEVERAL).any():
            mixed.append(name)
    names_of_mixed, names_of_sets = ", ".join(f"'{name}'" for name in mixed), ", ".join(sorted(data_sets.values()))
    notes = [f"{names_of_mixed} left out where one row is of several data sets: {names_of_sets}"] if mixed else []
    return replace(table, columns=columns, notes=(*table.notes, *notes))


def _data_set_of_rows(table: Table, data_sets: dict[str, str]) -> NDArray[np.int64]:
    """(num_rows,) the place in `data_sets` of the one that a row is of."""
    is_of = np.full(table.num_rows, _NONE)
    for name, column in table.columns.items():
        if (timed := _TIMED.fullmatch(name)) is not None:
            place, rows = list(data_sets).index(timed["prefix"]), column.rows
            is_of[rows] = np.where(np.isin(is_of[rows], (_NONE, place)), place, _SEVERAL)
    return is_of


def _stem(name: str) -> str:
    return next(stem for stem in _STEMS if name.startswith(stem))
