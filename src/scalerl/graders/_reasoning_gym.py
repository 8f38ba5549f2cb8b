"""A data set of reasoning-gym, drawn in blocks: entry number i is entry i % 1024 of a block with a seed of its own.

Blocks, because some sets hold all their entries in memory, refuse a large size, or make other entries for another size.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import JsonValue

from scalerl.core.errors import DataError, UsageError, unknown_name
from scalerl.core.random import stream_key

BLOCK = 1024
"""Entries drawn from one seed."""
_ENTRIES_KEPT = 2**16
_NOT_TO_SET = ("seed", "size")
"""Parameters of every set that are the block's."""
_ORDERED_BY_HASH = {"isomorphic_strings", "knight_swap", "list_functions", "polynomial_multiplication", "ransom_note", "word_ladder"}
"""Sets of version 0.1.25 that go through Python sets of strings: another process makes other entries of the same seed."""

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DataSet:
    """Which data set, made how; two that are equal hold the same entries."""

    name: str
    parameters: str
    """The set's own parameters as JSON, which can be hashed."""
    seed: int

    @classmethod
    def of(cls, name: str, parameters: dict[str, JsonValue], *, seed: int) -> DataSet:
        """The data set that the settings of a task or a grader describe."""
        return cls(name, json.dumps(parameters, sort_keys=True), seed)

    @property
    def where(self) -> str:
        """How errors call it."""
        return f"reasoning-gym's '{self.name}'"

    def entry(self, number: int) -> Entry:
        """Question, answer and what the scorer needs to know, as the package makes them.

        Raises:
            UsageError: the package is missing, or the name or the parameters do not describe a data set of it.
            DataError: the set cannot make this entry, or makes it without an answer.
        """
        return _entry(self, number)

    def score(self, answer: str, number: int) -> float:
        """What the set's own scorer gives an answer to an entry, in [0, 1]; it raises what it likes."""
        return float(_block(self, number // BLOCK).score_answer(answer, self.entry(number)))


@lru_cache(_ENTRIES_KEPT)
def _entry(data_set: DataSet, number: int) -> Entry:
    block = _block(data_set, number // BLOCK)
    try:
        entry: Entry = block[number % BLOCK]
    except Exception as error:  # Somebody else's code runs here, and may fail in any way.
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"entry {number} cannot be made ({reason})", where=data_set.where, remedy="change task.parameters") from error
    if not isinstance(entry["answer"], str):
        raise DataError("its entries have no gold answers", where=data_set.where, remedy="choose another data set")
    return entry


@lru_cache(64)
def _block(data_set: DataSet, number: int) -> Any:
    package = _package()
    known = package.factory.DATASETS
    if data_set.name not in known:
        raise unknown_name("data set of reasoning-gym", data_set.name, known, where="task.dataset")
    parameters = json.loads(data_set.parameters)
    _, config = known[data_set.name]
    names = {field.name for field in dataclasses.fields(config)}.difference(_NOT_TO_SET)
    for name in parameters:
        if name not in names:
            raise unknown_name("parameter", name, names, where=data_set.where)
    if data_set.name in _ORDERED_BY_HASH and not os.environ.get("PYTHONHASHSEED", "").isdecimal():
        raise UsageError(
            "its entries follow Python's hashes and differ from process to process",
            where=data_set.where,
            remedy="set the environment variable PYTHONHASHSEED=0 for all of the run",
        )
    seed, _ = stream_key(data_set.seed, "reasoning_gym", data_set.name, number)
    try:
        return package.create_dataset(data_set.name, seed=seed, size=BLOCK, **parameters)
    except (AssertionError, TypeError, ValueError) as error:
        raise UsageError(f"its parameters do not fit ({error})", where=data_set.where, remedy="change task.parameters") from None


def _package() -> Any:
    try:
        import reasoning_gym  # noqa: PLC0415  (an extra, which takes seconds to import)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"it needs the package reasoning-gym, which is not installed ({error})",
            where="task 'reasoning_gym'",
            remedy="install it with: pip install 'scalerl[train]'",
        ) from None
    return reasoning_gym
