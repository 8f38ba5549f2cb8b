"""MLflow's file store: `mlruns/EXPERIMENT/RUN/metrics/NAME`, a line `ms value step` for each value.

The folder of the store, of an experiment or of one run will do; each run that is not deleted is a curve. A name with
slashes is a path of folders. The values that a run logs one after the other at one step are a row, as in `mlflow.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from scalerl.core.errors import DataError
from scalerl.core.units import counted
from scalerl.importers import Importer, Sniff, Table, TableBuilder
from scalerl.importers._runs import RUN, distinct_names
from scalerl.importers.tables.table import number_of

_META, _METRICS, _RUN_NAME = "meta.yaml", "metrics", "tags/mlflow.runName"
_DELETED = "lifecycle_stage: deleted"
_NUM_PARTS = (3, 5)
"""Newer versions add the name and the digest of a data set to a line."""


class Mlruns(Importer):
    """An MLflow tracking store of folders and text files."""

    example = {
        "meta.yaml": b"lifecycle_stage: active\n",
        "metrics/flops": b"1000 10 1\n2000 20 2\n3000 30 3\n",
        "metrics/eval/accuracy": b"1000 0.21 1\n2000 0.33 2\n3000 0.41 3\n",
    }

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """A folder in which the folder of a run can be found."""
        return Sniff.CERTAIN if not head and next(_run_folders(path), None) else Sniff.NO

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """Every value of every run.

        Raises:
            DataError: every run is deleted.
        """
        folders = [folder for folder in _run_folders(path) if _DELETED not in _text(folder / _META)]
        if not folders:
            raise DataError("every run in it is deleted", where=str(path), remedy="restore one with: mlflow runs restore")
        names = distinct_names({folder.name: _name_of(folder) for folder in folders})
        table, damage = TableBuilder({*labels, RUN}), _Damage()
        for folder in sorted(folders, key=lambda folder: names[folder.name]):
            values = sorted(_values(folder / _METRICS, damage), key=lambda value: value.time_ms)
            for step, at_step in groupby(values, key=lambda value: value.step):
                row = list(at_step)
                cells = [(value.name, value.value) for value in row]
                table.add([(RUN, names[folder.name]), ("step", step), *cells, ("_timestamp", row[-1].time_ms / 1000.0)])
        return table.build(by=(RUN,), notes=damage.notes())


class _Value(NamedTuple):
    """One line of one file."""

    time_ms: float
    step: float
    name: str
    value: float


@dataclass(slots=True)
class _Damage:
    """What could not be read in the files of a store."""

    num_cut: int = 0
    num_bad: int = 0
    first_bad: Path | None = None

    def notes(self) -> Iterator[str]:
        """Sentences for the user."""
        if self.num_cut:
            yield f"the last line of {counted(self.num_cut, 'file')} left out: it was cut short"
        if self.num_bad:
            yield f"{counted(self.num_bad, 'line')} left out: not of the form 'ms value step', the first in {self.first_bad}"


def _run_folders(path: Path) -> Iterator[Path]:
    """The folders of runs in that of a run, of an experiment or of a store; what MLflow moved to its `.trash` is not there."""
    for place in ("", "[!.]*/", "[!.]*/[!.]*/"):
        runs = [file.parent for file in sorted(path.glob(f"{place}{_META}")) if (file.parent / _METRICS).is_dir()]
        if runs:
            yield from runs
            return


def _name_of(folder: Path) -> str:
    """The name of the run in `folder`; "" if it has none."""
    return _text(folder / _RUN_NAME).strip() if (folder / _RUN_NAME).is_file() else ""


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _values(metrics: Path, damage: _Damage) -> Iterator[_Value]:
    """Every value of a run; what is none is counted in `damage`."""
    for file in sorted(file for file in metrics.rglob("*") if file.is_file()):
        name = file.relative_to(metrics).as_posix()
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                parts = line.split()
                time_ms, step = (number_of(part) for part in parts[0:3:2]) if len(parts) in _NUM_PARTS else (math.nan, math.nan)
                if not line.endswith("\n"):
                    damage.num_cut += 1
                elif math.isfinite(time_ms) and math.isfinite(step):
                    yield _Value(time_ms, step, name, number_of(parts[1]))
                else:
                    damage.num_bad, damage.first_bad = damage.num_bad + 1, damage.first_bad or file
