"""Importers of trackers that write a log of their own for each start of a run, framed as LevelDB frames its log.

A subclass says how its files begin and end, and what a record holds. Files with one run id are one run that was started
several times; what is logged at one step one after the other is a row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import numpy as np

from scalerl.core.errors import DataError
from scalerl.importers import Importer, Sniff, Table, TableBuilder
from scalerl.importers._runs import RUN, distinct_names
from scalerl.importers.framing.damage import Damage
from scalerl.importers.framing.leveldb import records
from scalerl.importers.framing.protobuf import MalformedError

Cells = list[tuple[str, object]]


@dataclass(slots=True)
class Run:
    """What a log tells of its run."""

    id: str
    """The same in every log of the run."""
    name: str = ""
    """As its user called it, if it says so."""


class RunLogs(Importer):
    """A log, the folder of a run, or a folder with those of several."""

    signature: ClassVar[bytes]
    """How a file begins."""
    suffix: ClassVar[str]
    """How its name ends."""

    @abstractmethod
    def run_of(self, file: Path) -> Run:
        """The run whose log lies at `file`, as far as the path tells."""

    @abstractmethod
    def cells(self, record: bytes, run: Run) -> Iterator[tuple[object, Cells]]:
        """The step and the cells of each row in `record`, which may also tell about `run`.

        Raises:
            MalformedError: it is no record of this format.
        """

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """By how a file begins, or by the files in a folder."""
        is_log = bool(self._files(path)) if path.is_dir() else head.startswith(self.signature)
        return Sniff.CERTAIN if is_log else Sniff.NO

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """Every row of every run, with its run's name.

        Raises:
            DataError: nothing was logged, or nothing is left of it.
        """
        table, names, notes = TableBuilder({*labels, RUN}), dict[str, str](), list[str]()
        for file in self._files(path) if path.is_dir() else [path]:
            run, damage = self.run_of(file), Damage()
            for row in self._rows(file, run, damage):
                table.add([*row, (RUN, run.id)])
            names[run.id] = run.name or names.get(run.id, "")
            notes += damage.notes(file.name)
        if not len(table):
            damaged = f" ({'; '.join(notes)})" if notes else ""
            raise DataError(f"nothing is logged in it{damaged}", where=str(path), remedy="give the log of a run that has logged metrics")
        built, name_of = table.build(by=(RUN,), notes=notes), distinct_names(names)
        return replace(built, labels={**built.labels, RUN: np.array([name_of[run] for run in built.labels[RUN]], np.object_)})

    def _rows(self, file: Path, run: Run, damage: Damage) -> Iterator[Cells]:
        """The cells logged at each step; `damage` receives what is no row."""
        # A row that does not say its step goes with no other: a new object equals nothing.
        for _, rows in groupby(self._steps(file, run, damage), key=lambda row: object() if row[0] is None else row[0]):
            yield [cell for _, cells in rows for cell in cells]

    def _steps(self, file: Path, run: Run, damage: Damage) -> Iterator[tuple[object, Cells]]:
        for record in records(file, self.signature, damage):
            try:
                yield from list(self.cells(record, run))
            except MalformedError:
                damage.num_bad += 1

    def _files(self, path: Path) -> list[Path]:
        """The logs in a folder and in those of its runs, oldest start first; links to them (`latest-run`) left out."""
        files = {file.resolve() for pattern in ("*", "*/*") for file in path.glob(f"{pattern}{self.suffix}") if file.is_file()}
        return sorted(files, key=lambda file: (file.parent.name.removeprefix("offline-"), file.name))
