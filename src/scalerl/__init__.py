"""scalerl: know the ceiling before you pay for the climb.

    >>> import scalerl
    >>> recipe = scalerl.resolve("scalerl", scale="paper-8b")
    >>> recipe.batch.num_completions
    768

Importing the package imports nothing else: a public name loads its room when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalerl.curves import Arm as Arm
    from scalerl.curves import backtest as backtest
    from scalerl.curves import compare as compare
    from scalerl.curves import decided as decided
    from scalerl.curves import fit as fit
    from scalerl.importers import Choice as Choice
    from scalerl.importers import read_curves as read_curves
    from scalerl.recipes import Recipe as Recipe
    from scalerl.recipes import resolve as resolve
    from scalerl.records.curve import Curve as Curve
    from scalerl.reports import write_figure as write_figure
    from scalerl.reports import write_html as write_html
    from scalerl.runs import RunDirectory as RunDirectory
    from scalerl.runs.training import resume as resume
    from scalerl.runs.training import train as train

_ROOMS = {
    "Arm": "scalerl.curves",
    "Choice": "scalerl.importers",
    "Curve": "scalerl.records.curve",
    "Recipe": "scalerl.recipes",
    "RunDirectory": "scalerl.runs",
    "backtest": "scalerl.curves",
    "compare": "scalerl.curves",
    "decided": "scalerl.curves",
    "fit": "scalerl.curves",
    "read_curves": "scalerl.importers",
    "resolve": "scalerl.recipes",
    "resume": "scalerl.runs.training",
    "train": "scalerl.runs.training",
    "write_figure": "scalerl.reports",
    "write_html": "scalerl.reports",
}

__all__ = sorted(_ROOMS)  # noqa: PLE0605  (one list of the public names)


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'scalerl' has no attribute '{name}'")
    return getattr(importlib.import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
