"""Every error a user can meet, as one picklable tree.

    ScalerlError              exit 1   the work failed
    ├── UsageError            exit 2   the command or the recipe is wrong
    │   ├── UnknownNameError           no component, recipe, key or column has that name
    │   ├── RecipeError                a recipe does not describe a run
    │   ├── UnitError                  a quantity is given in another unit than asked
    │   └── OccupiedError              the place to write is taken; nothing was overwritten
    ├── DataError             exit 3   the input cannot be used
    │   └── CorruptLogError            an event log is damaged before its end
    ├── BudgetError           exit 5   the budget is spent
    ├── LostRoleError         exit 1   a process that the run needs is gone
    └── StoppedError          exit 130 the user stopped the work

Exit 4 is no error: `scalerl fit` leaves with it when every curve was read and none could be answered.
A message says what, where and what to do about it, in one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_LISTED = 20
"""Names that a remedy lists; a log can have hundreds of columns."""


class ScalerlError(Exception):
    """Base of the tree: `what` went wrong, `where` (a file, key or column) and the `remedy`."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        located = f"{self.where}: {self.what}" if self.where else self.what
        return f"{located}; {self.remedy}" if self.remedy else located

    def __reduce__(self) -> tuple[object, ...]:
        # Exception pickles positional arguments only; the keyword-only ones travel as state.
        return (type(self), (self.what,), {"where": self.where, "remedy": self.remedy})


class UsageError(ScalerlError):
    """The command line, the call or the recipe asks for something that does not exist or make sense."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that selects nothing; `unknown_name` builds it with the nearest known names."""


class RecipeError(UsageError):
    """A recipe does not describe a run: a key, a value, or a combination of them."""


class UnitError(UsageError):
    """A quantity carries a unit that its place does not take."""


class OccupiedError(UsageError):
    """The folder or file to write is in use by another run; nothing was overwritten."""


class DataError(ScalerlError):
    """An input file cannot be read or holds nothing that can be used."""

    exit_code = 3


class CorruptLogError(DataError):
    """An event log is damaged somewhere else than in its last line, so no fold of it can be trusted."""


class BudgetError(ScalerlError):
    """The declared budget is spent."""

    exit_code = 5


class LostRoleError(ScalerlError):
    """A process that the run needs died, or has fallen silent: nothing is wrong with its work, and another one may do it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy for a misspelt `name`: the nearest of `known`, or all of them when none is near."""
    known = sorted(known)
    by_folded_name = {candidate.casefold(): candidate for candidate in known}
    near = get_close_matches(name.casefold(), by_folded_name, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(f"'{by_folded_name[candidate]}'" for candidate in near) + "?"
    if not known:
        return "there are none to choose from"
    listed = ", ".join(known[:_MOST_LISTED])
    return f"choose one of {listed}" if len(known) <= _MOST_LISTED else f"choose one of {listed} ... ({len(known)} in all)"


def unknown_name(kind: str, name: str, known: Iterable[str], *, where: str | None = None) -> UnknownNameError:
    """The error for a `name` that is not among the `known` ones of its `kind` (a loss, a recipe, a column)."""
    return UnknownNameError(f"there is no {kind} '{name}'", where=where, remedy=did_you_mean(name, known))


class StoppedError(ScalerlError):
    """The user stopped the work before its end; what was done is kept."""

    exit_code = 130
