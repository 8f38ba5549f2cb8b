"""TensorBoard event files: one, a folder of them, or a folder with a folder for each run.

    scalerl fit runs/                              a curve for each run, by step or --gpus N
    scalerl fit runs/first --x wall_time

Every scalar is read, whether written as a simple value or as a tensor; TensorBoard's own reader keeps 10,000 points of each.
Its tags become columns, beside `step`, `wall_time` (a time stamp) and `elapsed_s` (since the file was opened, which leaves
out the pause before a resume). The files of a folder are one run: opened one after the other they are its restarts, opened
while another was still written they go with it.

A value belongs to the step that was logged with it, even if it was written late, as an asynchronous evaluation is. A tag
that counts steps of its own, such as epochs, is placed at the step which the run had reached, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import DataError
from scalerl.core.units import counted
from scalerl.importers import Importer, Sniff, Table
from scalerl.importers._runs import RUN
from scalerl.importers.framing.damage import Damage
from scalerl.importers.framing.events import ScalarEvents, joined, scalars_of
from scalerl.importers.framing.protobuf import encoded
from scalerl.importers.framing.tfrecord import chunks, framed, starts_like_a_record
from scalerl.importers.tables.table import Column
from scalerl.records.curve import FloatArray

_MARK = "tfevents"
"""In the name of every event file."""
_FOLDERS = ("*", "*/*", "*/*/*")
"""Where event files are sought in a folder: in itself, in those of its runs, and in those of groups of runs."""
_OWN_STEPS_SHARE, _MOST = 0.5, 0.5
"""A tag most of whose values stand at less than this share of the step that others had reached counts steps of its own."""


def _example() -> bytes:
    """A writer's first record, then an evaluation every ten seconds."""
    events = [encoded(1, 1000.0) + encoded(3, "brain.Event:2")]
    for step, accuracy in ((1, 0.21), (2, 0.33), (3, 0.41)):
        value = encoded(1, "eval/accuracy") + encoded(8, encoded(1, 2) + encoded(6, accuracy))
        events.append(encoded(1, 1000.0 + 10.0 * step) + encoded(2, step) + encoded(5, encoded(1, value)))
    return b"".join(map(framed, events))


class Tensorboard(Importer):
    """Event files of `torch.utils.tensorboard`, TensorFlow, or whatever else writes them."""

    example = {"events.out.tfevents.1000.host": _example()}

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """A name with `tfevents`, a record's header, or a folder with such files; surest where they lie in it directly."""
        if path.is_dir():
            found = next((pattern for pattern in _FOLDERS if any(_event_files(path, pattern))), None)
            return Sniff.NO if found is None else Sniff.CERTAIN if found == _FOLDERS[0] else Sniff.LIKELY
        return Sniff.CERTAIN if head and (_MARK in path.name or starts_like_a_record(head)) else Sniff.NO

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:  # noqa: ARG002
        """Every scalar, one row for each step of each run.

        Raises:
            DataError: there is none.
        """
        notes: list[str] = []
        tables = {name: _run_table(sessions, name, notes) for name, sessions in _runs(path, notes) if sessions}
        if not tables:
            damaged = f" ({'; '.join(notes)})" if notes else ""
            raise DataError(f"it holds no scalars{damaged}", where=str(path), remedy="give the event files of a training run")
        return _stacked(tables, notes)


def _event_files(folder: Path, pattern: str) -> Iterator[Path]:
    return (file for file in folder.glob(f"{pattern}{_MARK}*") if file.is_file())


def _runs(path: Path, notes: list[str]) -> Iterator[tuple[str, list[ScalarEvents]]]:
    """(name, sessions) of each run at `path`; `notes` receives what was left out."""
    if path.is_file():
        yield path.resolve().parent.name or path.name, _sessions([path], notes)
        return
    files_of: dict[Path, list[Path]] = {}
    for pattern in _FOLDERS:
        for file in sorted(_event_files(path, pattern)):
            files_of.setdefault(file.parent, []).append(file)
    strangers = sorted(file.name for folder in files_of for file in folder.iterdir() if file.is_file() and _MARK not in file.name)
    if strangers:
        notes.append(f"{counted(len(strangers), 'file')} beside the event files left out, such as {strangers[0]}")
    for folder, files in files_of.items():
        yield path.resolve().name or str(path) if folder == path else str(folder.relative_to(path)), _sessions(files, notes)


def _sessions(files: list[Path], notes: list[str]) -> list[ScalarEvents]:
    """What was written between two starts of a run, in order; files that were open at the same time are one session."""
    opened = sorted((events for file in files if len(events := _events_in(file, notes))), key=_started)
    sessions: list[list[ScalarEvents]] = []
    ended = -np.inf
    for events in opened:
        if _started(events) > ended:
            sessions.append([])
        sessions[-1].append(events)
        ended = max(ended, float(events.wall_time.max()))
    return [session[0] if len(session) == 1 else _by_time(joined(session)) for session in sessions]


def _events_in(file: Path, notes: list[str]) -> ScalarEvents:
    damage = Damage()
    events = joined(scalars_of(chunk, damage) for chunk in chunks(file, damage))
    notes += damage.notes(file.name)
    if not len(events):
        notes.append(f"{file.name} holds no scalars")
    return events


def _started(events: ScalarEvents) -> float:
    return float(events.wall_time[0]) if events.started is None else events.started


def _by_time(events: ScalarEvents) -> ScalarEvents:
    return events.ordered(np.argsort(events.wall_time, kind="stable"))


def _run_table(sessions: list[ScalarEvents], name: str, notes: list[str]) -> Table:
    """The run's rows, one for each step; those of a restart begin with the first step that it repeats."""
    events = joined(sessions)
    session = np.repeat(np.arange(len(sessions)), [len(events) for events in sessions])
    elapsed_s = events.wall_time - np.array([np.nan if events.started is None else events.started for events in sessions])[session]
    restarts, reached, own_steps = _progress(events, session)
    step = events.step.copy()
    for tag in own_steps:
        at, _ = events.cells[tag]
        step[at] = reached[at]
        notes.append(f"'{tag}' of {name} counts steps of its own: its values are placed at the step that the run had reached")
    advances = restarts | (np.diff(reached, prepend=-np.inf) != 0)
    lineage = np.cumsum(restarts)
    order = np.lexsort((step, lineage))  # a value that was written late goes to its step
    events, step, lineage, elapsed_s, advances = events.ordered(order), step[order], lineage[order], elapsed_s[order], advances[order]
    begins = (np.diff(step, prepend=np.nan) != 0) | (np.diff(lineage, prepend=-1) != 0)
    row = np.cumsum(begins) - 1
    columns = {"wall_time": Column(row[advances], events.wall_time[advances])}
    if (elapsed_s >= 0).all():  # else a file's start is not known, or it was converted from an older log
        columns["elapsed_s"] = Column(row[advances], elapsed_s[advances])
    columns |= {tag: Column(row[at], values) for tag, (at, values) in events.cells.items()}
    columns["step"] = Column(np.arange(row[-1] + 1), step[begins])
    return Table(int(row[-1]) + 1, columns, {})


def _progress(events: ScalarEvents, session: NDArray[np.int64]) -> tuple[NDArray[np.bool_], FloatArray, list[str]]:
    """(n,) whether a restart begins at an event, (n,) the largest step since the last, and the tags that count steps of their own."""
    reached = _reached(events, _restarts(events, session, events.cells))
    own_steps = [tag for tag, (at, _) in events.cells.items() if _counts_own_steps(events.step[at], reached[at])]
    restarts = _restarts(events, session, events.cells.keys() - own_steps)
    return restarts, _reached(events, restarts), own_steps


def _counts_own_steps(steps: FloatArray, reached: FloatArray) -> bool:
    """Whether a tag's `steps`, (n,), lie far behind those that the run had `reached`, (n,), and went on to reach meanwhile.

    An evaluation of all checkpoints after the training is behind, too, but the run no longer goes on.
    """
    return bool(reached[0] < reached[-1] and (steps < _OWN_STEPS_SHARE * reached).mean() > _MOST)


def _restarts(events: ScalarEvents, session: NDArray[np.int64], tags: Iterable[str]) -> NDArray[np.bool_]:
    """(n,) whether a restart begins at an event: where one of the `tags` goes back in its steps, or repeats one in a later session.

    That an event's step lies behind tells nothing: it may have been written late, or by a process that evaluates afterwards.
    """
    falls: list[tuple[int, int]] = []
    for tag in tags:
        at, _ = events.cells[tag]
        forward = np.diff(events.step[at])
        fell = (forward < 0) | ((forward == 0) & (np.diff(session[at]) > 0))
        falls += zip(at[1:][fell].tolist(), at[:-1][fell].tolist(), strict=True)
    restarts, last = np.zeros(len(events), np.bool_), 0
    for event, before in sorted(falls):
        if before >= last:  # else the restart that it shows is the one that another tag has shown
            last = event
            restarts[event] = True
    return restarts


def _reached(events: ScalarEvents, restarts: NDArray[np.bool_]) -> FloatArray:
    """(n,) the largest step since the last restart."""
    lineages = np.split(events.step, np.flatnonzero(restarts))
    return np.concatenate([np.maximum.accumulate(steps) for steps in lineages])


def _stacked(tables: dict[str, Table], notes: list[str]) -> Table:
    """The runs' rows one after the other, with a column that tells them apart."""
    offsets = np.cumsum([0, *(table.num_rows for table in tables.values())])
    parts: dict[str, list[Column]] = {}
    for offset, table in zip(offsets[:-1], tables.values(), strict=True):
        for name, column in table.columns.items():
            parts.setdefault(name, []).append(Column(column.rows + offset, column.values))
    columns = {
        name: Column(np.concatenate([part.rows for part in parts]), np.concatenate([part.values for part in parts]))
        for name, parts in parts.items()
    }
    runs = np.repeat(np.array(list(tables), np.object_), [table.num_rows for table in tables.values()])
    return Table(int(offsets[-1]), columns, {RUN: runs}, by=(RUN,), notes=tuple(notes))
