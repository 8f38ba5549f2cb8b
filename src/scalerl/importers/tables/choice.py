"""What the user asks of a log: which columns, which rows, how many devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalerl.core.errors import UsageError
from scalerl.importers.tables.vocabulary import GENERIC


@dataclass(frozen=True, slots=True)
class Choice:
    """The answers that a user gives in advance; everything left out is decided from the log and said in the curve's notes."""

    x: str | None = None
    """Column of compute, or the name of an axis (`tokens`) to be made from the columns that a framework logs."""
    y: str | None = None
    """Column of the reward."""
    by: tuple[str, ...] = ()
    """Columns whose values tell curves apart: one curve for each combination."""
    gpus: float | None = None
    """Devices of the whole run, generators included: turns seconds into device-hours."""
    bounds: tuple[float, float] | None = None
    """Least and largest reward that the grader can give."""
    where: tuple[tuple[str, str], ...] = ()
    """(column, value): only rows that have them all are read."""

    def __post_init__(self) -> None:
        if self.gpus is not None and not (math.isfinite(self.gpus) and self.gpus > 0):
            raise UsageError(f"{self.gpus:g} is no number of GPUs", where="--gpus", remedy="give the devices of the whole run")
        if self.bounds is not None and not (all(map(math.isfinite, self.bounds)) and self.bounds[0] < self.bounds[1]):
            raise UsageError(
                f"{self.bounds[0]:g}:{self.bounds[1]:g} leaves no room for a reward",
                where="--bounds",
                remedy="give the least and the largest reward, for example 0:1",
            )

    @staticmethod
    def of(
        *,
        x: str | None = None,
        y: str | None = None,
        by: str | None = None,
        gpus: float | None = None,
        bounds: str | None = None,
        where: Sequence[str] = (),
    ) -> Choice:
        """A choice from the texts of command-line flags: `by` is `A,B`, `bounds` is `LOW:HIGH`, `where` is `COLUMN=VALUE`.

        Raises:
            UsageError: a flag does not have its form.
        """
        return Choice(
            x=x,
            y=y,
            by=() if by is None else _columns(by),
            gpus=gpus,
            bounds=None if bounds is None else _bounds(bounds),
            where=tuple(_condition(text) for text in where),
        )

    @property
    def labels(self) -> frozenset[str]:
        """The columns whose cells must be kept as text: those asked for, and those that usually tell runs, or parts of one, apart."""
        return frozenset([*self.by, *(column for column, _ in self.where), *GENERIC.runs, *GENERIC.parts])


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UsageError(f"'{text}' names no column", where="--by", remedy="write COLUMN,..., for example loss,seed")
    return names


def _bounds(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise UsageError(f"'{text}' is no pair of numbers", where="--bounds", remedy="write LOW:HIGH, for example 0:100") from None


def _condition(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise UsageError(f"'{text}' is no condition", where="--where", remedy="write COLUMN=VALUE, for example seed=0")
    return column, value
