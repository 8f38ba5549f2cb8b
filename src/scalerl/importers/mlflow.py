"""MLflow's database (`mlflow.db`, `sqlite:///...`): a curve for each run that is not deleted.

    metrics(key, value, timestamp in ms, run_uuid, step, is_nan)          NaN is 0.0 with is_nan, infinity the largest double

The values that a run logs one after the other at one step are a row. Time stamps serve as clock if nothing better was
logged. Names come as MLflow permits them: verl's `mean@8` is `mean_at_8` there. The file store is read by `mlruns.py`.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from collections.abc import Set as AbstractSet
from contextlib import closing
from itertools import groupby
from pathlib import Path

from scalerl.importers import Importer, Sniff, Table, TableBuilder
from scalerl.importers._runs import RUN, distinct_names
from scalerl.importers._sqlite import reading, sniffed

_COLUMNS = frozenset({"key", "value", "timestamp", "run_uuid", "step", "is_nan"})
_RUNS = "SELECT run_uuid, ifnull(name, '') FROM runs WHERE lifecycle_stage = 'active'"
_METRICS = """
    SELECT run_uuid, step, CAST(timestamp AS REAL) / 1000, CAST(key AS TEXT), value, is_nan
    FROM metrics JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active'
    ORDER BY name, run_uuid, timestamp, metrics.rowid
"""


def _example() -> bytes:
    """The two tables that matter, with three evaluations of one run."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(
            """
            PRAGMA page_size = 512;
            CREATE TABLE runs (run_uuid TEXT, name TEXT, lifecycle_stage TEXT);
            CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN);
            INSERT INTO runs VALUES ('a1', 'first', 'active');
            """
        )
        rows = [
            (name, value, 1000 * step, "a1", step, 0) for step in (1, 2, 3) for name, value in (("flops", 10.0 * step), ("acc", step / 5))
        ]
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.commit()
        return database.serialize()


class Mlflow(Importer):
    """An MLflow tracking store in one SQLite file."""

    example = {"mlflow.db": _example()}

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """By the columns of its table `metrics`."""
        return sniffed(path, head, metrics_columns=_COLUMNS)

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """Every value of every run.

        Raises:
            DataError: the database is damaged.
        """
        table = TableBuilder({*labels, RUN})
        with reading(path) as database:
            names = distinct_names({str(run): str(name) for run, name in database.execute(_RUNS)})
            for (run, step), metrics in groupby(database.execute(_METRICS), key=lambda metric: metric[:2]):
                row = list(metrics)
                cells = [(name, math.nan if is_nan else _number(value)) for _, _, _, name, value, is_nan in row]
                table.add([(RUN, names[str(run)]), ("step", step), *cells, ("_timestamp", row[-1][2])])
        return table.build(by=(RUN,))


def _number(value: float) -> float:
    """A value as it was before MLflow put the largest double for infinity."""
    return math.copysign(math.inf, value) if isinstance(value, float) and abs(value) >= sys.float_info.max else value
