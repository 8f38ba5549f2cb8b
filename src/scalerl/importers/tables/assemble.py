"""From a table and the user's choice to curves: rows picked, runs told apart, restarts followed, points checked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import DataError, UsageError, unknown_name
from scalerl.core.units import STEPS, counted, format_number
from scalerl.importers.tables.choice import Choice
from scalerl.importers.tables.compute import ComputeColumn, choose_compute, step_of
from scalerl.importers.tables.counting import counts_of, falls_behind
from scalerl.importers.tables.epochs import counted_on
from scalerl.importers.tables.evaluations import told_apart
from scalerl.importers.tables.lineage import Counts, Lineage, carried, follow, logged_late, shuffled, without_steps
from scalerl.importers.tables.mixtures import refuse_mixed_parts, refuse_mixed_runs
from scalerl.importers.tables.reward import RewardColumn, bounds_of, choose_rewards
from scalerl.importers.tables.table import Table, number_of
from scalerl.importers.tables.vocabulary import GENERIC, recognise
from scalerl.records.curve import Curve, FloatArray

_SEVERAL_RUNS = "if the log holds several runs, tell them apart with --by or --where"
_EPOCHS = f"they are counted on, as through the epochs of one run; {_SEVERAL_RUNS}"
_NO_AMOUNT = "if it is the amount of each step, --x COLUMN names another counter"
_NO_WASTE = "if the steps start again with every epoch, --x COLUMN names a counter that goes on"
_MUCH = 0.4
"""A run that wastes more than this share of its bill has more likely been misread: its steps may start again with every epoch."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What a log says in one column."""

    name: str
    numbers: int
    """How many finite numbers it has."""
    first: float | None
    last: float | None
    text: str
    """The first text in it, shortened."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a log offers, and what would be chosen from it."""

    rows: int
    columns: tuple[ColumnFacts, ...]
    notes: tuple[str, ...]
    """What would be chosen and why, or why nothing can be."""


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    """The columns that become curves."""

    compute: ComputeColumn
    rewards: tuple[RewardColumn, ...]
    """One, or that of each held-out data set."""
    step: FloatArray | None
    """(num_rows,) optimizer step of each row, NaN where it logs none; None if the log counts no steps."""
    epoch: FloatArray | None
    """(num_rows,) NaN where absent; None if the log counts no epochs."""
    evaluated_before_step: bool
    """Whether the reward logged at a step comes before that step's update."""

    def notes(self, *rewards: RewardColumn) -> tuple[str, ...]:
        """What was chosen, with `rewards` of the rewards."""
        return (*(note for reward in rewards for note in reward.notes), *self.compute.notes)


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """A curve before the bounds of all curves are known."""

    name: str
    compute: FloatArray
    reward: FloatArray
    trials: FloatArray | None
    wasted: float
    notes: tuple[str, ...]


def curves_of(table: Table, choice: Choice, *, path: Path) -> list[Curve]:
    """One curve, or one for each run in the log and each data set that it evaluates.

    Raises:
        DataError: the columns hold no curve.
        UsageError: `choice` names a column or a value that the log does not have.
    """
    where = str(path)
    table = told_apart(_filtered(table, choice, where=where))
    by = _splitting_columns(table, choice, where=where)
    with np.errstate(all="ignore"):  # absurd numbers overflow to infinity, which Curve.of refuses
        chosen = _choose(table, choice, by, where=where)
        rows_of_runs = list(_runs(table, by, alone=" / ".join(value for _, value in choice.where) or path.stem))
        runs = [(reward, _points(_name(run, reward, by), rows, chosen, reward)) for run, rows in rows_of_runs for reward in chosen.rewards]
    if not any(points.reward.size for _, points in runs):
        metrics = " or ".join(f"'{reward.metric}'" for reward in chosen.rewards)
        raise DataError(f"no row has both {chosen.compute.text} and {metrics}", where=where, remedy="choose others with --x and --y")
    if not all(math.isfinite(points.wasted) for _, points in runs):
        raise DataError(f"{chosen.compute.text} adds up to more than a number can hold", where=where, remedy="choose another with --x")
    lost_notes = [f"'{points.name}' has no points and was left out" for _, points in runs if not points.reward.size]
    if num_lost := table.num_rows - sum(rows.size for _, rows in rows_of_runs):
        lost_notes.append(f"{counted(num_lost, 'row')} left out: without a value in {' and '.join(by)}")
    bounds_of_metric = {reward.metric: _bounds(reward, runs, choice, where=where) for reward, points in runs if points.reward.size}
    return [
        Curve.of(
            points.name,
            chosen.compute.axis,
            points.compute,
            points.reward,
            trials=points.trials,
            bounds=bounds_of_metric[reward.metric][0],
            metric=reward.metric,
            source=where,
            wasted_compute=points.wasted,
            notes=(*chosen.notes(reward), *table.notes, *points.notes, *bounds_of_metric[reward.metric][1], *lost_notes),
        )
        for reward, points in runs
        if points.reward.size
    ]


def _name(run: str, reward: RewardColumn, by: tuple[str, ...]) -> str:
    """What the curve of a reward in a run is called."""
    if not reward.data_set:
        return run
    return f"{run} / {reward.data_set}" if by else reward.data_set


def _bounds(
    reward: RewardColumn, runs: list[tuple[RewardColumn, _Points]], choice: Choice, *, where: str
) -> tuple[tuple[float, float], list[str]]:
    """The bounds of a reward, which are the same in all runs, and what to say of them."""
    rewards = np.concatenate([points.reward for other, points in runs if other is reward])
    return bounds_of(rewards, choice, reward.metric, where=where)


def listing_of(table: Table, choice: Choice, *, path: Path) -> Listing:
    """The columns of a log, and the notes on what would be chosen."""
    table = told_apart(_filtered(table, choice, where=str(path)))
    facts = []
    for name, column in table.columns.items():
        numbers = column.numbers
        first, last = (float(numbers[0]), float(numbers[-1])) if numbers.size else (None, None)
        facts.append(ColumnFacts(name, int(numbers.size), first, last, column.text))
    try:
        chosen = _choose(table, choice, _splitting_columns(table, choice, where=str(path)), where=str(path))
        notes = (*chosen.notes(*chosen.rewards), *table.notes)
    except DataError as error:
        notes = (str(error),)
    return Listing(table.num_rows, tuple(facts), notes)


def _choose(table: Table, choice: Choice, by: tuple[str, ...], *, where: str) -> _Chosen:
    if not any(column.numbers.size for column in table.columns.values()):
        raise DataError("it holds no numbers", where=where, remedy="give the log of a training run")
    framework = recognise(table.columns)
    vocabularies = (framework, GENERIC) if framework else (GENERIC,)
    rewards = choose_rewards(table, choice, vocabularies, where=where)
    step = step_of(table, vocabularies, by=by)
    compute = choose_compute(table, choice, vocabularies, step, where=where)
    if any(compute.text == f"'{reward.metric}'" for reward in rewards):
        raise UsageError(f"{compute.text} is taken for both compute and reward", where=where, remedy="choose two columns with --x and --y")
    for _, rows in _runs(table, by, alone=""):
        at = carried((compute.values if step is None else step.values)[rows])
        for reward in rewards:
            refuse_mixed_parts(table, reward, rows=rows, at=at, by=by, where=where)
    return _Chosen(
        compute=compute,
        rewards=rewards,
        step=None if step is None else step.values,
        epoch=next((table.dense(name) for name in GENERIC.epoch if name in table.columns), None),
        evaluated_before_step=rewards[0].held_out and framework is not None and framework.held_out_before_step,
    )


def _filtered(table: Table, choice: Choice, *, where: str) -> Table:
    for column, value in choice.where:
        cells = _label_cells(table, column, flag="--where", where=where)
        wanted = {cell for cell in set(cells) if cell == value or (cell and number_of(cell) == number_of(value))}
        if not wanted:
            raise unknown_name(f"value in the column '{column}' that is", value, set(cells) - {""}, where=f"{where}: --where")
        table = table.where(np.array([cell in wanted for cell in cells], dtype=np.bool_))
    return table


def _label_cells(table: Table, column: str, *, flag: str, where: str) -> NDArray[np.object_]:
    if column not in table.labels:
        raise unknown_name("column", column, table.columns, where=f"{where}: {flag}")
    return table.labels[column]


def _splitting_columns(table: Table, choice: Choice, *, where: str) -> tuple[str, ...]:
    """The columns that tell the runs of the log apart.

    Raises:
        DataError: several runs are mixed and nobody said how to tell them apart.
    """
    by = choice.by or table.by
    for column in by:
        _label_cells(table, column, flag="--by", where=where)
    if not by:
        refuse_mixed_runs(table, where=where)
    return by


def _runs(table: Table, by: tuple[str, ...], *, alone: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """(name, rows) of each run, in the order of their first rows; rows that do not say to which they belong are in none."""
    if not by:
        yield alone, np.arange(table.num_rows)
        return
    rows_of: dict[tuple[str, ...], list[int]] = {}
    for row, values in enumerate(zip(*(table.labels[column] for column in by), strict=True)):
        if all(values):
            rows_of.setdefault(values, []).append(row)
    for values, rows in rows_of.items():
        # A bare number says nothing in a heading: seed=0.
        names = (f"{column}={value}" if math.isfinite(number_of(value)) else value for column, value in zip(by, values, strict=True))
        yield " / ".join(names), np.array(rows, dtype=np.int64)


def _points(name: str, rows: NDArray[np.int64], chosen: _Chosen, reward_column: RewardColumn) -> _Points:
    """The points of a reward in the run in `rows`."""
    steps = None if chosen.step is None else carried(chosen.step[rows])
    if out_of_order := steps is not None and shuffled(steps):
        order = np.argsort(steps, kind="stable")
        rows, steps = rows[order], steps[order]
    counter, num_epochs = chosen.compute.values[rows], 1
    if steps is not None:
        counter, steps, num_epochs = _through_epochs(chosen, rows, steps)
    lineage = _lineage(chosen.compute, counter, steps)
    reward = reward_column.values[rows]
    (at,) = np.nonzero(np.isfinite(reward))
    if lineage is None or not at.size:
        return _Points(name, np.empty(0), np.empty(0), None, 0.0, ())
    num_logged = at.size
    if steps is None:
        done = at.astype(np.float64)
    else:
        at = at[lineage.kept(at, steps[at])]
        num_logged = at.size
        at = _last_of_each_step(at, steps)
        before = 1.0 if chosen.evaluated_before_step and chosen.compute.axis != STEPS else 0.0
        done = steps[at] - before
    num_repeated = num_logged - at.size
    compute = lineage.at(done)
    known = ~np.isnan(compute)
    num_between = int(lineage.between_rows(done[known]).sum())
    num_outside = int((~known).sum())
    at, compute = at[known], compute[known]
    trials = None if reward_column.trials is None else reward_column.trials[rows][at]
    if trials is not None and not (trials > 0).all():
        trials = None
    notes = (
        *(["the rows are not in the order of the run and were sorted by their steps"] if out_of_order else []),
        *([f"the steps start again {counted(num_epochs - 1, 'time')} while the run goes on: {_EPOCHS}"] if num_epochs > 1 else []),
        *_reward_notes(reward_column, rows, at, num_repeated=num_repeated),
        *_compute_notes(chosen.compute, reward_column.metric, rows, num_outside=num_outside, num_between=num_between),
        *_lineage_notes(lineage, chosen.compute, num_back=int((np.diff(compute) < 0).sum())),
    )
    scale = chosen.compute.scale
    return _Points(name, compute * scale, reward[at], trials, lineage.wasted * scale, notes)


def _through_epochs(chosen: _Chosen, rows: NDArray[np.int64], steps: FloatArray) -> tuple[FloatArray, FloatArray, int]:
    """The counter of compute and the `steps`, (n,) each, of the run in `rows`, counted on through its epochs, and how many these are."""
    counter = chosen.compute.values[rows]
    known = np.isfinite(counter)
    is_total = known.any() and _counts(chosen.compute, counter[known], steps[known]) != "per_step"
    epoch = None if chosen.epoch is None else chosen.epoch[rows]
    counted_steps, num_epochs = counted_on(steps, epoch=epoch, total=counter if is_total else None)
    if chosen.compute.axis == STEPS and np.array_equal(counter[known], steps[known]):
        counter = np.where(known, counted_steps, np.nan)
    return counter, counted_steps, num_epochs


def _counts(compute: ComputeColumn, values: FloatArray, steps: FloatArray | None) -> Counts:
    if compute.is_sure and compute.counts != "unsaid":
        return compute.counts
    return counts_of(values, steps=steps, named=compute.counts, if_growing=compute.if_growing)


def _lineage(compute: ComputeColumn, values: FloatArray, steps: FloatArray | None) -> Lineage | None:
    """The run's lineage by its counter of compute, (n,) at its `steps`, (n,); None if it counted nothing."""
    (at,) = np.nonzero(np.isfinite(values))
    if compute.axis == STEPS and steps is not None:
        at = at[~logged_late(steps[at])]
    if not at.size:
        return None
    steps = None if steps is None else steps[at]
    counts = _counts(compute, values[at], steps)
    return without_steps(at, values[at], counts=counts) if steps is None else follow(at, steps, values[at], counts=counts)


def _last_of_each_step(at: NDArray[np.int64], steps: FloatArray) -> NDArray[np.int64]:
    _, last = np.unique(steps[at][::-1], return_index=True)
    return at[at.size - 1 - last]


def _reward_notes(reward: RewardColumn, rows: NDArray[np.int64], at: NDArray[np.int64], *, num_repeated: int) -> Iterator[str]:
    if num_unusable := int(reward.unusable[rows].sum()):
        yield f"{counted(num_unusable, 'value')} of '{reward.metric}' left out: not a finite number"
    if num_repeated:
        repeated = counted(num_repeated, "value")
        yield f"{repeated} of '{reward.metric}' left out: logged again at the same step, where the last counts; {_SEVERAL_RUNS}"
    if reward.spread is not None and (num_binned := int((reward.spread[rows][at] > 0).sum())):
        binned = counted(num_binned, "point")
        yield f"{binned} of '{reward.metric}' averaged from several values: export the chart without smoothing and grouping"


def _compute_notes(compute: ComputeColumn, metric: str, rows: NDArray[np.int64], *, num_outside: int, num_between: int) -> Iterator[str]:
    text = compute.text
    if num_unusable := int(compute.unusable[rows].sum()):
        yield f"{counted(num_unusable, 'value')} of {text} left out: not a finite number"
    if num_outside:
        yield f"{counted(num_outside, 'value')} of '{metric}' left out: before the first or after the last reading of {text}"
    if num_between:
        yield f"{counted(num_between, 'point')} of '{metric}' between two readings of {text}, which is interpolated there"


def _amount_of(lineage: Lineage) -> str:
    gap = float(np.median(np.diff(lineage.steps))) if lineage.steps.size > 1 else 1.0
    steps = f", of all {gap:g} from one row to the next," if lineage.start is not None and gap > 1.0 else ", and"
    return f"the amount of each step{steps} added up"


def _lineage_notes(lineage: Lineage, compute: ComputeColumn, *, num_back: int) -> Iterator[str]:
    if lineage.counts != compute.counts:
        taken_for = _amount_of(lineage) if lineage.counts == "per_step" else "a running total"
        against = "" if compute.counts == "unsaid" else ", whatever its name says"
        yield f"{compute.text} is taken for {taken_for}, as its numbers suggest{against}"
    elif lineage.counts == "total" and lineage.start is not None and falls_behind(lineage.compute, lineage.steps):
        yield f"{compute.text} is taken for a running total, though it grows far less than the steps: {_NO_AMOUNT}"
    if num_back:
        yield f"compute goes back {counted(num_back, 'time')}: {_SEVERAL_RUNS}"
    if lineage.resumed_rows.size:
        yield from _resume_notes(lineage, compute)
    if lineage.unlogged_until is not None:
        yield f"the log starts at step {lineage.unlogged_until:g}: the steps before are counted at the rate of its first rows"
    if lineage.paused_s:
        yield f"{format_number(lineage.paused_s / 3600.0)} hours left out: the clock ran on while no step was done"


def _resume_notes(lineage: Lineage, compute: ComputeColumn) -> Iterator[str]:
    times, first = counted(lineage.resumed_rows.size, "time"), f"{lineage.resumed_steps[0]:g}"
    if not lineage.wasted:
        yield f"{compute.text} starts again {times}, first at step {first}, and is counted on: no step was repeated"
        return
    bill = lineage.wasted + float(lineage.compute[-1])
    share = lineage.wasted / bill if bill > 0.0 else 1.0
    wasted = f"{format_number(lineage.wasted * compute.scale)} {compute.axis.unit}"
    yield (
        f"resumed {times}, first from step {first}: the steps logged last count, "
        f"{wasted} were spent on steps that were repeated ({share:.1%} of the bill)"
    )
    if share > _MUCH:
        yield f"so much waste is DOUBTFUL: {_NO_WASTE}; {_SEVERAL_RUNS}"
