"""What the training frameworks call their columns, read from `vocabulary.toml` beside this file.

A framework is recognised by its signature keys, and then asked before the generic names that any log may use.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from scalerl.core.components import Settings
from scalerl.importers.tables.lineage import Counts

_LONGEST_NAME = 256
"""Characters; matching takes their third power, and a hostile log must not take hours."""

Pattern = Annotated[re.Pattern[str], BeforeValidator(lambda text: re.compile(f"(?!.{{{_LONGEST_NAME + 1}}})(?:{text})", re.IGNORECASE))]
"""A regular expression that a whole column name must match, in any case."""

AxisName = Literal["device_hours", "flops", "seconds", "tokens", "rollouts", "usd", "steps"]


class Counter(Settings):
    """Columns that count compute."""

    axis: AxisName
    """What they count; seconds become device-hours once the number of devices is known."""
    counts: Counts | Literal["unsaid"]
    """`total` grows over the run, `per_step` is the amount of one step (or its mean since the last row), `clock` is a
    total whose pauses are not compute or a time stamp; `unsaid` is told from the numbers: a total seldom falls."""
    columns: tuple[Pattern, ...]
    """The first that is there counts, unless `combine` says otherwise."""
    combine: Literal["first", "sum", "product"] = "first"
    """Of the columns that match."""
    less: tuple[Pattern, ...] = ()
    """Columns to subtract: what the counter includes although it is no training."""
    beside: str | None = None
    """Where this column exists, only rows that have it count: it tells the trainer's rows from another process's."""


class Devices(Settings):
    """The number of devices as a quotient of logged columns."""

    product_of: tuple[str, ...]
    divided_by: tuple[str, ...]
    of: Literal["run", "trainer"] = "run"
    """Whose devices they are; those of a trainer alone are named and not counted with."""


class Vocabulary(Settings):
    """One framework's names."""

    name: str
    signature: tuple[Pattern, ...] = ()
    """Keys that only this framework writes."""
    step: tuple[str, ...] = ()
    """Columns that count optimizer steps; the first that a row has is its step."""
    epoch: tuple[str, ...] = ()
    """Columns that count epochs: where they rise, steps that start again do not repeat any."""
    held_out: tuple[Pattern, ...] = ()
    """Evaluations on held-out data, best first; the named groups of a pattern are the name of the data set."""
    held_out_before_step: bool = False
    """Whether the evaluation logged at a step comes before that step's update (steps counted from 0)."""
    not_held_out: tuple[Pattern, ...] = ()
    """Columns that look like an evaluation but are none."""
    training: tuple[Pattern, ...] = ()
    """Rewards on the training prompts, best first."""
    compute: tuple[Counter, ...] = ()
    devices: Devices | None = None
    runs: tuple[str, ...] = ()
    """Columns whose values tell runs apart."""
    parts: tuple[str, ...] = ()
    """Columns whose values tell apart what the rewards of one run were measured on."""


class _File(Settings):
    framework: tuple[Vocabulary, ...]
    generic: Vocabulary
    named: tuple[Counter, ...]


_FILE = _File.model_validate(tomllib.loads(Path(__file__).with_name("vocabulary.toml").read_text(encoding="utf-8")))

FRAMEWORKS = _FILE.framework
"""The frameworks, in the order in which a tie between signatures is decided."""
GENERIC = _FILE.generic
"""Names that any log may use."""
NAMED = _FILE.named
"""What the name of a column says about its unit when the user chose it."""


def recognise(columns: Iterable[str]) -> Vocabulary | None:
    """The framework with the most signature keys among `columns`; None where there is not one."""
    columns = list(columns)
    hits = {
        framework.name: sum(any(key.fullmatch(column) for column in columns) for key in framework.signature) for framework in FRAMEWORKS
    }
    best = max(FRAMEWORKS, key=lambda framework: hits[framework.name])
    return best if hits[best.name] else None
