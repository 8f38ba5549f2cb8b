"""JSON lines: one object for each row, as most RL frameworks write their metrics.

    {"step": 10, "reward": 0.31, "timing_s": {"step": 41.2}}          nested names are joined: timing_s/step
    {"step": 10, "data": {"critic/score/mean": 0.31}}                 verl's file logger

A line that is no object is counted and named; a last line without its end, which a killed run leaves, is cut, and so are
the NUL bytes that a machine which went down may leave behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from scalerl.core.errors import DataError
from scalerl.core.units import counted
from scalerl.importers import Importer, Sniff, Table, TableBuilder
from scalerl.importers._json import decoded, flat

_VERL_KEYS = {"step", "data"}


class Jsonl(Importer):
    """One JSON object a line."""

    example = {
        "log.jsonl": b'{"step": 1, "tokens": 10, "eval/accuracy": 0.21}\n'
        b'{"step": 2, "tokens": 20, "eval/accuracy": 0.33}\n'
        b'{"step": 3, "tokens": 30, "eval/accuracy": 0.41}\n'
    }

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """Lines that begin with a brace; a single document spread over lines is another format."""
        lines = head.lstrip(b"\xef\xbb\xbf \r\n\t").rstrip(b"\0").splitlines()
        if not lines or not lines[0].startswith(b"{") or b"\0" in head.rstrip(b"\0"):
            return Sniff.NO
        if path.suffix.lower() in (".jsonl", ".ndjson"):
            return Sniff.LIKELY
        return Sniff.PLAUSIBLE if isinstance(decoded(lines[0]), dict) else Sniff.NO

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """Every line that holds an object.

        Raises:
            DataError: no line does.
        """
        table = TableBuilder(labels)
        num_bad = first_bad = last_bad = number = 0
        line = b""
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                row = decoded(line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\0"))
                if isinstance(row, dict):
                    table.add(_cells(row))
                elif line.strip():
                    num_bad, first_bad, last_bad = num_bad + 1, first_bad or number, number
        if not len(table):
            raise DataError(f"none of its {number} lines is a JSON object", where=str(path), remedy="give a log with one object a line")
        notes = []
        if num_bad and last_bad == number and not line.endswith(b"\n"):
            num_bad -= 1
            notes.append(f"line {number} left out: the last line was cut short")
        if num_bad:
            notes.append(f"{counted(num_bad, 'line')} left out: no JSON object, the first is line {first_bad}")
        return table.build(notes=notes)


def _cells(row: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """(name, cell) of every cell, taken out of verl's envelope."""
    if row.keys() == _VERL_KEYS and isinstance(row["data"], dict):
        return flat({"step": row["step"], **row["data"]})
    return flat(row)
