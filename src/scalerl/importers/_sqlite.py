"""Somebody else's SQLite database, opened so that nothing in it or beside it changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from scalerl.core.errors import DataError
from scalerl.importers import Sniff

_MAGIC = b"SQLite format 3\0"
_PATIENCE_S = 1.0
"""Waiting for a lock; a log is opened by each importer that may know it."""
_PAGE_SIZE = slice(16, 18)
"""Where the header holds the bytes of a page; 1 stands for 65,536. https://www.sqlite.org/fileformat.html"""


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The database at `path`, read-only; with what a program that still writes to it holds in its journal.

    Raises:
        DataError: it is damaged, cut short or locked.
    """
    try:
        with closing(sqlite3.connect(_address(path), uri=True, timeout=_PATIENCE_S)) as database:
            database.text_factory = lambda raw: raw.decode(errors="replace")
            database.execute("PRAGMA trusted_schema = OFF")
            yield database
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where a message of SQLite quotes damaged bytes
        raise DataError(
            f"the database cannot be read ({error})", where=str(path), remedy="copy it whole, with the -wal file beside it if there is one"
        ) from None


def sniffed(path: Path, head: bytes, *, metrics_columns: frozenset[str]) -> Sniff:
    """Certain if the database's table `metrics` has these columns; one that cannot be read is plausible, so that its reader says why."""
    if not head.startswith(_MAGIC):
        return Sniff.NO
    try:
        with reading(path) as database:
            return Sniff.CERTAIN if metrics_columns <= columns_of(database, "metrics") else Sniff.NO
    except DataError:
        return Sniff.PLAUSIBLE


def columns_of(database: sqlite3.Connection, table: str) -> frozenset[str]:
    """The names of a table's columns; none if there is no such table (a view is none: it may run anything)."""
    if database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone() is None:
        return frozenset()
    return frozenset(name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,)))


def _address(path: Path) -> str:
    """The URI that opens a database for reading.

    A database in WAL mode gets side files when it is opened, even to be read, unless it is called immutable; that is only
    true while no program has a journal open beside it.

    Raises:
        DataError: the file ends inside a page, whose missing half SQLite would take for zeros.
    """
    with path.open("rb") as file:
        page_bytes = int.from_bytes(file.read(_PAGE_SIZE.stop)[_PAGE_SIZE], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    if page_bytes == 0 or path.stat().st_size % page_bytes:
        raise DataError("the database was cut short", where=str(path), remedy="copy it whole")
    is_written = any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    return f"{path.absolute().as_uri()}?mode=ro{'' if is_written else '&immutable=1'}"
