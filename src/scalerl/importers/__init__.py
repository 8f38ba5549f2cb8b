"""Foreign training logs, read into curves: one file per log format, everything else shared.

    curves = read_curves("run.jsonl", choice=Choice(gpus=64))

An importer knows one format and nothing of reinforcement learning: it turns a path into a `Table` of named columns in
the order of the log. Which column is compute and which the reward, resumed runs, percentages and axes are decided once
for all formats in `importers/tables/`. A new format is a new file here:

    class Mine(Importer):
        example = {"log.mine": b"MINE ..."}           # what the contract suite reads, cuts and garbles

        def sniff(self, path, head):                  # cheap: the name, and the first 64 KiB
            return Sniff.CERTAIN if head.startswith(b"MINE") else Sniff.NO

        def read(self, path, labels):                 # stream the rows into a TableBuilder
            table = TableBuilder(labels)
            for record in records(path):
                table.add(record.items())
            return table.build()

Importers are imported to ask each of them: whatever is heavy is imported inside `read`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import ClassVar

from scalerl.core.components import Component
from scalerl.core.errors import DataError
from scalerl.importers.tables.assemble import Listing, curves_of, listing_of
from scalerl.importers.tables.choice import Choice
from scalerl.importers.tables.table import Table, TableBuilder
from scalerl.records.curve import Curve

__all__ = ["Choice", "Importer", "Listing", "Sniff", "Table", "TableBuilder", "list_columns", "read_curves"]

_HEAD_BYTES = 64 * 1024


class Sniff(IntEnum):
    """How sure an importer is that a path is its own; the surest reads it."""

    NO = 0
    PLAUSIBLE = 1
    """The content has the shape, as any text with commas has that of CSV."""
    LIKELY = 2
    """The name has the usual ending as well."""
    CERTAIN = 3
    """A signature, or a name that only this format uses."""


class Importer(Component, family="importers"):
    """Reads one log format; stateless, light to import."""

    example: ClassVar[Mapping[str, bytes]] = {}
    """A tiny log with at least three evaluations: content by file name, in one folder if there are several; none on a server."""

    @abstractmethod
    def sniff(self, path: Path, head: bytes) -> Sniff:
        """Whether `path` is such a log: a file with its first 64 KiB as `head`; else `head` is empty, and `path` a folder or an address."""

    @abstractmethod
    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """The log as a table of numbers, which also keeps the cells of the columns in `labels` as text.

        Raises:
            DataError: the log is damaged beyond use.
        """

    def curves(self, path: Path, choice: Choice) -> list[Curve]:
        """The curves in the log; formats that know what their columns mean may say so instead of being guessed at."""
        return curves_of(self.read(path, choice.labels), choice, path=path)


def read_curves(path: str | Path, *, choice: Choice | None = None) -> list[Curve]:
    """The curves in the log at `path`, each with notes on what was chosen, what else there was and what was left out.

    Raises:
        DataError: nothing there, not readable, no known log, or nothing in it that could be a curve.
        UsageError: `choice` names a column or a value that the log does not have.
    """
    choice, path = choice or Choice(), Path(path)
    with _reading(path):
        return _importer_of(path).curves(path, choice)


def list_columns(path: str | Path, *, choice: Choice | None = None) -> Listing:
    """What the log at `path` offers, and what `read_curves` would choose from it.

    Raises:
        DataError: nothing there, not readable, or no known log.
    """
    choice, path = choice or Choice(), Path(path)
    with _reading(path):
        return listing_of(_importer_of(path).read(path, choice.labels), choice, path=path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what the operating system says of a path into one sentence."""
    try:
        yield
    except PermissionError:
        raise DataError("it may not be read", where=str(path), remedy="ask for permission to read it") from None
    except OSError as error:
        raise DataError(f"reading it failed ({error.strerror or error})", where=str(path), remedy="check the disk and the path") from None


def _importer_of(path: Path) -> Importer:
    """The importer that is surest of `path`.

    Raises:
        DataError: none of them knows it.
    """
    head = _head_of(path)
    if path.is_file() and not head.strip(b"\0 \r\n\t"):
        raise DataError("the file is empty", where=str(path), remedy="check that the run wrote its log there")
    sureness, importer = _surest(path, head)
    if sureness is Sniff.NO:
        raise _unknown_log(path)
    return importer


def _head_of(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def _surest(path: Path, head: bytes) -> tuple[Sniff, Importer]:
    importers = [importer() for importer in Importer.family.classes().values()]
    return max(((importer.sniff(path, head), importer) for importer in importers), key=lambda scored: scored[0])


def _unknown_log(path: Path) -> DataError:
    if not path.exists():
        return DataError("there is no such file or folder", where=str(path), remedy="check the path")
    formats = "formats that are read: " + ", ".join(Importer.family.names())
    if path.is_file():
        return DataError("it is no log in a known format", where=str(path), remedy=formats)
    if not path.is_dir():
        return DataError("it is neither a file nor a folder", where=str(path), remedy="save the stream to a file first")
    files = [child for child in sorted(path.iterdir()) if child.is_file() and _surest(child, _head_of(child))[0] >= Sniff.LIKELY]
    if files:
        return DataError("it is a folder, not a log", where=str(path), remedy="give " + " or ".join(str(file) for file in files[:3]))
    return DataError("the folder holds no known log", where=str(path), remedy=formats)
