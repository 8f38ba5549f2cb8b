"""Trackio's database of a project: `PROJECT.db` in `$TRACKIO_DIR` or `~/.cache/huggingface/trackio`; a curve for each run.

    metrics(run_name, step, metrics)          a row of numbers as JSON, NaN and infinities as texts; newer ones have a run_id

Its time stamps tell when rows were flushed, many at once, and are no clock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path

from scalerl.core.units import counted
from scalerl.importers import Importer, Sniff, Table, TableBuilder
from scalerl.importers._json import decoded, flat
from scalerl.importers._runs import RUN, distinct_names
from scalerl.importers._sqlite import columns_of, reading, sniffed

_COLUMNS = frozenset({"run_name", "step", "metrics"})


def _example() -> bytes:
    """Three rows of one run."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript("PRAGMA page_size = 512; CREATE TABLE metrics (run_name TEXT, step INTEGER, metrics BLOB);")
        rows = [("first", step, json.dumps({"tokens": 10 * step, "acc": step / 5})) for step in (1, 2, 3)]
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?)", rows)
        database.commit()
        return database.serialize()


class Trackio(Importer):
    """A Trackio project."""

    example = {"project.db": _example()}

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """By the columns of its table `metrics`."""
        return sniffed(path, head, metrics_columns=_COLUMNS)

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """Every row of every run, those of one run together; a row that is no JSON object is counted.

        Raises:
            DataError: the database is damaged.
        """
        table, num_bad = TableBuilder({*labels, RUN}), 0
        with reading(path) as database:
            run = "ifnull(run_id, run_name)" if "run_id" in columns_of(database, "metrics") else "run_name"
            runs = database.execute(f"SELECT DISTINCT CAST({run} AS TEXT), CAST(run_name AS TEXT) FROM metrics WHERE {run} NOT NULL")
            names = distinct_names(dict(runs))
            rows = database.execute(f"SELECT CAST({run} AS TEXT), step, metrics FROM metrics ORDER BY run_name, {run}, rowid")
            for run_id, step, metrics in rows:
                row = decoded(metrics) if isinstance(metrics, (bytes, str)) else None
                if isinstance(row, dict) and run_id in names:
                    table.add([*flat(row), (RUN, names[run_id]), ("step", step)])
                else:
                    num_bad += 1
        notes = [f"{counted(num_bad, 'row')} left out: no JSON object, or of no run"] if num_bad else []
        return table.build(by=(RUN,), notes=notes)
