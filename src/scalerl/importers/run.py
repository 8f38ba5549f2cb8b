"""A run directory of our own: held-out evaluations against what the run had spent when their weights were made.

Everything is folded from the event log (`accounting/curves.py`); FLOP are the axis unless `--x` asks for device_hours,
tokens or usd, since they compare between machines. A run of several tasks gives a curve of each.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

import msgspec

from scalerl.accounting.curves import RUN_AXES, CurveFold
from scalerl.core.errors import DataError
from scalerl.core.events import Entry, LogReader
from scalerl.core.units import Axis
from scalerl.importers import Choice, Importer, Sniff, Table, TableBuilder
from scalerl.importers.tables.assemble import curves_of
from scalerl.records.cost import Activity, Cost
from scalerl.records.curve import Curve
from scalerl.records.events import EVENTS_FILE, Evaluated, Event, RunStarted, StepFinished

_TASK = "task"
_FIRST_ENTRY = (b'{"seq":0,', b'{"seq": 0,')


def _example() -> bytes:
    """Three steps of a run, each evaluated."""
    events: list[Event] = [RunStarted(recipe_hash="example", num_devices=1)]
    for step in (1, 2, 3):
        cost = Cost("trainer:0", Activity.TRAIN, seconds=10.0, flops=1e9)
        events += [
            StepFinished(step=step, version=step, costs=(cost,)),
            Evaluated(task="math", version=step, num_passed=10 * step, num_graded=50),
        ]
    return b"".join(msgspec.json.encode(Entry(seq, 10.0 * seq, event)) + b"\n" for seq, event in enumerate(events))


class Run(Importer):
    """A folder with an `events.jsonl`, of a run that is over, was killed, or still goes on."""

    example = {EVENTS_FILE: _example()}

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """The folder, or the event log itself, which begins with its first entry; others call their logs so too."""
        is_log = path.name == EVENTS_FILE and head.startswith(_FIRST_ENTRY) if path.is_file() else (path / EVENTS_FILE).is_file()
        return Sniff.CERTAIN if is_log else Sniff.NO

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """A row for each evaluation, with its task, its pass rate and the compute on each axis.

        Raises:
            DataError: nothing was evaluated yet.
            CorruptLogError: the log is damaged before its end.
        """
        return _table(*_folded(path), labels, path)

    def curves(self, path: Path, choice: Choice) -> list[Curve]:
        """A curve for each task, with the compute that resumes threw away."""
        fold, torn_bytes = _folded(path)
        axis = next((axis for axis in RUN_AXES if choice.x == axis.name), None) or _default_axis(fold)
        asked = choice if choice.x else replace(choice, x=axis.name)
        curves = curves_of(_table(fold, torn_bytes, choice.labels, path), asked, path=path)
        wasted = fold.wasted(axis) if curves[0].axis == axis else 0.0
        return [replace(curve, wasted_compute=wasted) for curve in curves]


def _folded(path: Path) -> tuple[CurveFold, int]:
    """The log's evaluations, and the length of a torn last line."""
    reader: LogReader[Event] = LogReader(path if path.is_file() else path / EVENTS_FILE, Event)
    fold = CurveFold()
    for entry in reader:
        fold.update(entry)
    return fold, reader.torn_bytes


def _default_axis(fold: CurveFold) -> Axis:
    """The first axis on which the run has spent anything."""
    points = [point for task in fold.tasks() for point in fold.points[task]]
    return next((axis for axis in RUN_AXES if any(point.amounts.on(axis) for point in points)), RUN_AXES[0])


def _table(fold: CurveFold, torn_bytes: int, labels: AbstractSet[str], path: Path) -> Table:
    table = TableBuilder({*labels, _TASK})
    for task in fold.tasks():
        for point in fold.points[task]:
            amounts = [(axis.name, point.amounts.on(axis)) for axis in RUN_AXES]
            table.add([(_TASK, task), ("pass_rate", point.num_passed / point.num_graded), ("trials", point.num_graded), *amounts])
    if not len(table):
        raise DataError("the run has no evaluation yet", where=str(path), remedy="wait for its first one")
    notes = [f"the last event was torn ({torn_bytes} bytes) and left out"] if torn_bytes else []
    return replace(table.build(by=(_TASK,), notes=notes), has_totals=True)
