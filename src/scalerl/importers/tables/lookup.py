"""Finding a column by the name that the user gives it, and saying what else there was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from scalerl.core.errors import DataError, unknown_name
from scalerl.importers.tables.table import Table

_RESPELLINGS = ((r"/mean$", ""), (r"$", "/mean"), (r"@", "_at_"), (r"_at_", "@"), (r"^eval_", "eval/"), (r"^eval/", "eval_"))
"""Forms of one name: older TRL has no /mean, MLflow no @, and trackers write eval/ for eval_."""
_LONGEST = 40
"""Characters of a cell that are quoted."""
_NUM_SHOWN = 3
_NUM_PROPOSED = 6


def numeric(table: Table) -> list[str]:
    """The columns that hold numbers, in the order of the log."""
    return [name for name, column in table.columns.items() if column.numbers.size]


def find(table: Table, name: str, *, flag: str, where: str) -> tuple[str, list[str]]:
    """The column of numbers that the user calls `name`, perhaps in another of its forms, and a note if it is.

    Raises:
        UnknownNameError: there is none.
        DataError: it holds no numbers.
    """
    forms = [name, *(re.sub(pattern, replacement, name, count=1) for pattern, replacement in _RESPELLINGS)]
    found = next((form for form in forms if form in table.columns), None)
    if found is None:
        raise unknown_name("column", name, numeric(table), where=f"{where}: {flag}")
    column = table.columns[found]
    if not column.numbers.size:
        held = f"text such as '{column.text}'" if column.text else "no finite number"
        raise DataError(f"the column '{found}' holds {held}", where=f"{where}: {flag}", remedy="choose a column of numbers")
    return found, [] if found == name else [f"{flag}: '{name}' is called '{found}' in this log"]


def unread(table: Table, patterns: Iterable[re.Pattern[str]]) -> list[str]:
    """Notes on the columns that match one of the `patterns` but hold text in place of numbers: 10%, 1,000 or a date."""
    texts = {name: column.text for name, column in table.columns.items() if column.text and not column.numbers.size}
    patterns = tuple(patterns) if texts else ()
    known = [name for name in texts if any(pattern.fullmatch(name) for pattern in patterns)]
    return [f"'{name}' was not read: it holds text such as {texts[name][:_LONGEST]!r}, not numbers" for name in known]


def none_found(table: Table, what: str, unread_notes: list[str], *, flag: str, where: str) -> DataError:
    """The error for a log in which no column looks like `what`, with columns to choose from."""
    what = "; ".join([f"no column looks like {what}", *unread_notes[:1]])
    proposed = ", ".join(f"'{name}'" for name in numeric(table)[:_NUM_PROPOSED])
    return DataError(what, where=where, remedy=f"choose one with {flag}, such as {proposed}")


def also_there(others: Sequence[str]) -> str:
    """A bracket that names the columns which were not chosen; nothing where there are none."""
    more = f" and {len(others) - _NUM_SHOWN} more" if len(others) > _NUM_SHOWN else ""
    return f" (also there: {', '.join(others[:_NUM_SHOWN])}{more})" if others else ""
