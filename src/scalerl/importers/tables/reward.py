"""The columns of the reward: what the user says, else held-out evaluations, else, with a warning, the training reward.

A log that evaluates several data sets gives a curve of each, since a mixture of bounded laws is no bounded law; their
mean, if it is logged too, is named beside them and answers to `--y`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import DataError
from scalerl.core.units import counted
from scalerl.importers.tables.choice import Choice
from scalerl.importers.tables.evaluations import data_sets_in, without_data_set
from scalerl.importers.tables.lookup import also_there, find, none_found, numeric, unread
from scalerl.importers.tables.table import Table
from scalerl.importers.tables.vocabulary import GENERIC, Vocabulary
from scalerl.records.curve import FloatArray

TRIALS = "trials"
"""Column with the number of graded completions behind each reward."""
_LEAST_PERCENTAGE, _PERCENT = 10.0, 100.0
"""Rewards that reach above 10 and stay within 100 are percentages; below, sums of several reward functions are as likely."""
_FAILED, _FEW = -1.0, 0.2
"""What evaluations that failed are logged as; among rewards of zero and above, and in no more than this share of them, it is no reward."""
_MEAN_OF_ALL = ("", "all")
"""What an evaluation that is not of one data set names in place of it."""


@dataclass(frozen=True, slots=True, eq=False)
class RewardColumn:
    """The reward of each row; arrays of one length, num_rows."""

    metric: str
    """The column's name."""
    held_out: bool
    """Whether it is known as an evaluation on held-out data."""
    data_set: str
    """What it was evaluated on; "" where the log has no other."""
    values: FloatArray
    """NaN where absent."""
    unusable: NDArray[np.bool_]
    """Whether the cell is there but is no finite number."""
    spread: FloatArray | None
    """Largest minus least of the values that a binned export averages, if it tells."""
    trials: FloatArray | None
    notes: list[str]


@dataclass(frozen=True, slots=True)
class _Known:
    """A column that a vocabulary knows."""

    name: str
    whose: str
    """Whose name it is, in words."""
    pattern: re.Pattern[str]
    data_set: str
    """As the trainer's other columns or the groups of the pattern name it."""


def choose_rewards(table: Table, choice: Choice, vocabularies: tuple[Vocabulary, ...], *, where: str) -> tuple[RewardColumn, ...]:
    """Pick the reward, or that of each held-out data set, among the columns of `table`; a framework comes first among `vocabularies`.

    Raises:
        UnknownNameError: `choice.y` is no column.
        DataError: `choice.y` holds no numbers, or nothing looks like a reward.
    """
    held_out = {known.name: known for known in _known(table, vocabularies, "held_out")}
    training = {known.name: known for known in _known(table, vocabularies, "training") if known.name not in held_out}
    notes = unread(table, (pattern for vocabulary in vocabularies for pattern in (*vocabulary.held_out, *vocabulary.training)))
    data_set_of: dict[str, str] = {}
    if choice.y is not None:
        name, notes = find(table, choice.y, flag="--y", where=where)
        note_of = {name: f"reward: '{name}'{', the TRAINING reward' if name in training else ''}, as asked"}
    elif held_out:
        best = _of_data_sets(list(held_out.values()))
        one_of = f", one of {len(best)} data sets" if len(best) > 1 else ""
        data_set_of = {known.name: known.data_set for known in best if one_of}
        note_of = {known.name: f"reward: '{known.name}', {known.whose} for a held-out evaluation{one_of}" for known in best}
    elif training:
        name = next(iter(training))
        note_of = {name: f"reward: '{name}' is the TRAINING reward, for want of a held-out evaluation"}
    else:
        raise none_found(table, "a reward", notes, flag="--y", where=where)
    others = also_there([f"'{name}'" for name in (*held_out, *training) if name not in note_of])
    rewards = (
        RewardColumn(
            metric=name,
            held_out=name in held_out,
            data_set=data_set_of.get(name, ""),
            values=table.dense(name),
            unusable=table.unusable(name),
            spread=_spread(table, name),
            trials=table.dense(TRIALS) if TRIALS in table.columns else None,
            notes=[*notes, note + others],
        )
        for name, note in note_of.items()
    )
    return tuple(_without_failed(reward) if choice.bounds is None else reward for reward in rewards)


def _without_failed(reward: RewardColumn) -> RewardColumn:
    """`reward` without the few evaluations that failed, which it says."""
    failed = reward.values == _FAILED
    others = reward.values[np.isfinite(reward.values) & ~failed]
    num_failed = int(failed.sum())
    if not num_failed or num_failed > _FEW * (others.size + num_failed) or others.min() < 0.0:
        return reward
    highest = max(1.0, math.ceil(others.max()))
    note = (
        f"{counted(num_failed, 'value')} of '{reward.metric}' left out: exactly {_FAILED:g}, as failed evaluations are logged, "
        f"among rewards of {others.min():g} .. {others.max():g}; --bounds {_FAILED:g}:{highest:g} keeps them"
    )
    return replace(reward, values=np.where(failed, np.nan, reward.values), notes=[*reward.notes, note])


def bounds_of(rewards: FloatArray, choice: Choice, metric: str, *, where: str) -> tuple[tuple[float, float], list[str]]:
    """Least and largest possible reward, as given or as all `rewards` of a log suggest, and what to say about it.

    Raises:
        DataError: they are neither fractions, percentages nor rewards within -1 .. 1.
    """
    low, high = float(rewards.min()), float(rewards.max())
    if choice.bounds is not None:
        if low >= 0.0 and high <= 1.0 and choice.bounds[1] >= _PERCENT:
            asked = f"{choice.bounds[0]:g} .. {choice.bounds[1]:g}, as asked"
            return choice.bounds, [f"'{metric}' is read within {asked}, though it stays within 0 .. 1, as fractions do"]
        return choice.bounds, []
    if low >= 0.0 and high <= 1.0:
        return (0.0, 1.0), []
    otherwise = "--bounds LOW:HIGH says otherwise"
    if low >= 0.0 and _LEAST_PERCENTAGE < high <= _PERCENT:
        return (0.0, _PERCENT), [f"'{metric}' reaches {high:g} and is read as a percentage, within 0 .. 100; {otherwise}"]
    if -1.0 <= low < 0.0 and high <= 1.0:
        negative = f"is negative at {counted(int((rewards < 0).sum()), 'point')} of {rewards.size}, down to {low:g},"
        return (-1.0, 1.0), [f"'{metric}' {negative} and is read as a reward within -1 .. 1; {otherwise}"]
    raise DataError(
        f"'{metric}' spans {low:g} .. {high:g}: neither a fraction nor a percentage, perhaps a sum of rewards",
        where=where,
        remedy="give the least and the largest as --bounds LOW:HIGH, or choose one reward with --y",
    )


def _known(table: Table, vocabularies: tuple[Vocabulary, ...], kind: Literal["held_out", "training"]) -> list[_Known]:
    """The columns of a kind, best first; of columns that match one pattern the longest comes first."""
    refused = (*vocabularies[0].not_held_out, *vocabularies[0].training) if kind == "held_out" else ()
    names = [name for name in numeric(table) if not any(pattern.fullmatch(name) for pattern in refused)]
    names.sort(key=lambda name: (-table.columns[name].numbers.size, name))
    data_sets = data_sets_in(table.columns)
    known: dict[str, _Known] = {}
    for vocabulary in vocabularies:
        whose = vocabulary.name if vocabulary is GENERIC else f"{vocabulary.name}'s name"
        for pattern in vocabulary.held_out if kind == "held_out" else vocabulary.training:
            for name in names:
                bare_name, data_set = without_data_set(name, data_sets)
                if (match := pattern.fullmatch(bare_name)) is not None:
                    named = "/".join(filter(None, (data_set, *match.groupdict().values())))
                    known.setdefault(name, _Known(name, whose, pattern, named))
    return list(known.values())


def _of_data_sets(held_out: list[_Known]) -> list[_Known]:
    """The best column of each data set, among those of the best pattern; their mean only where it is not of several."""
    best: dict[str, _Known] = {}
    for known in held_out:
        if known.pattern is held_out[0].pattern:
            best.setdefault(known.data_set, known)
    means = [best.pop(name) for name in _MEAN_OF_ALL if name in best]
    return means[:1] if means and len(best) < 2 else list(best.values())


def _spread(table: Table, metric: str) -> FloatArray | None:
    least, largest = f"{metric}__MIN", f"{metric}__MAX"
    return table.dense(largest) - table.dense(least) if {least, largest} <= table.columns.keys() else None
