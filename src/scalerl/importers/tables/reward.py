"""The reward's column: what the user says, else a held-out evaluation, else, with a warning, the training reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import DataError
from scalerl.importers.tables.choice import Choice
from scalerl.importers.tables.lookup import also_there, find, none_found, numeric
from scalerl.importers.tables.table import Table
from scalerl.importers.tables.vocabulary import GENERIC, Vocabulary
from scalerl.records.curve import FloatArray

TRIALS = "trials"
"""Column with the number of graded completions behind each reward."""
_LEAST_PERCENTAGE, _PERCENT = 10.0, 100.0
"""Rewards that reach above 10 and stay within 100 are percentages; below, sums of several reward functions are as likely."""


@dataclass(frozen=True, slots=True, eq=False)
class RewardColumn:
    """The reward of each row; arrays of one length, num_rows."""

    metric: str
    """The column's name."""
    held_out: bool
    """Whether it is known as an evaluation on held-out data."""
    values: FloatArray
    """NaN where absent."""
    unusable: NDArray[np.bool_]
    """Whether the cell is there but is no finite number."""
    spread: FloatArray | None
    """Largest minus least of the values that a binned export averages, if it tells."""
    trials: FloatArray | None
    notes: list[str]


def choose_reward(table: Table, choice: Choice, vocabularies: tuple[Vocabulary, ...], *, where: str) -> RewardColumn:
    """Pick the reward among the columns of `table`; a framework comes first among `vocabularies`.

    Raises:
        UnknownNameError: `choice.y` is no column.
        DataError: `choice.y` holds no numbers, or nothing looks like a reward.
    """
    held_out = _known(table, vocabularies, "held_out")
    training = {name: whose for name, whose in _known(table, vocabularies, "training").items() if name not in held_out}
    known = [*held_out, *training]
    others = also_there([f"'{name}'" for name in known[1:]])
    if choice.y is not None:
        metric, notes = find(table, choice.y, flag="--y", where=where)
        notes.append(f"reward: '{metric}'{', the TRAINING reward' if metric in training else ''}, as asked")
    elif held_out:
        metric = known[0]
        notes = [f"reward: '{metric}', {held_out[metric]} for a held-out evaluation{others}"]
    elif training:
        metric = known[0]
        notes = [f"reward: '{metric}' is the TRAINING reward, for want of a held-out evaluation{others}"]
    else:
        raise none_found(table, "a reward", flag="--y", where=where)
    return RewardColumn(
        metric=metric,
        held_out=metric in held_out,
        values=table.dense(metric),
        unusable=table.unusable(metric),
        spread=_spread(table, metric),
        trials=table.dense(TRIALS) if TRIALS in table.columns else None,
        notes=notes,
    )


def bounds_of(rewards: FloatArray, choice: Choice, metric: str, *, where: str) -> tuple[tuple[float, float], list[str]]:
    """Least and largest possible reward, as given or as all `rewards` of a log suggest, and what to say about it.

    Raises:
        DataError: they are neither fractions, percentages nor rewards within -1 .. 1.
    """
    low, high = float(rewards.min()), float(rewards.max())
    if choice.bounds is not None:
        return choice.bounds, []
    if low >= 0.0 and high <= 1.0:
        return (0.0, 1.0), []
    otherwise = "--bounds LOW:HIGH says otherwise"
    if low >= 0.0 and _LEAST_PERCENTAGE < high <= _PERCENT:
        return (0.0, _PERCENT), [f"'{metric}' reaches {high:g} and is read as a percentage, within 0 .. 100; {otherwise}"]
    if -1.0 <= low < 0.0 and high <= 1.0:
        return (-1.0, 1.0), [f"'{metric}' is negative in places and is read as a reward within -1 .. 1; {otherwise}"]
    raise DataError(
        f"'{metric}' spans {low:g} .. {high:g}: neither a fraction nor a percentage, perhaps a sum of rewards",
        where=where,
        remedy="give the least and the largest as --bounds LOW:HIGH, or choose one reward with --y",
    )


def _known(table: Table, vocabularies: tuple[Vocabulary, ...], kind: Literal["held_out", "training"]) -> dict[str, str]:
    """Column: whose name it is, best first; of columns that match one pattern the longest comes first."""
    refused = (*vocabularies[0].not_held_out, *vocabularies[0].training) if kind == "held_out" else ()
    names = [name for name in numeric(table) if not any(pattern.fullmatch(name) for pattern in refused)]
    names.sort(key=lambda name: (-table.columns[name].numbers.size, name))
    known: dict[str, str] = {}
    for vocabulary in vocabularies:
        whose = vocabulary.name if vocabulary is GENERIC else f"{vocabulary.name}'s name"
        for pattern in vocabulary.held_out if kind == "held_out" else vocabulary.training:
            for name in names:
                if pattern.fullmatch(name):
                    known.setdefault(name, whose)
    return known


def _spread(table: Table, metric: str) -> FloatArray | None:
    least, largest = f"{metric}__MIN", f"{metric}__MAX"
    return table.dense(largest) - table.dense(least) if {least, largest} <= table.columns.keys() else None
