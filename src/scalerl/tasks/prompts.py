"""Prompts from a file of your own, graded by a grader of your choice.

    [task]
    type = "prompts"
    path = "data/math.jsonl"          # {"prompt": "What is 2 + 3?", "answer": "5"} a line; or a CSV or Parquet file
    graded_by = "exact"

A prompt that comes twice is read once. Which ones are held out is decided by a hash of their text under `data_seed`, so that it does
not depend on the order of the file, and rows that are added later move few.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from scalerl.core.errors import DataError
from scalerl.core.random import stream_key
from scalerl.graders import Grader
from scalerl.tasks import Example, Split, Task
from scalerl.tasks._rows import rows


class Prompts(Task):
    """A column of prompts and a column of gold answers."""

    path: str = Field(min_length=1, examples=["data/math.jsonl"])
    """A JSONL, CSV or Parquet file."""
    prompt_column: str = "prompt"
    answer_column: str = "answer"
    graded_by: Grader = Field(examples=["exact"])
    """Who compares a completion with the gold answer."""

    def examples(self, split: Split) -> Sequence[Example]:
        """The examples of a split, in the order of their hashes.

        Raises:
            UsageError: the path names something that is not read, or a column that is not there.
            DataError: the file is missing, damaged, or holds too few different prompts.
        """
        return self._examples()[split]

    def grader(self) -> Grader:
        """The grader of the settings."""
        return self.graded_by

    def _examples(self) -> dict[Split, tuple[Example, ...]]:
        examples = _shuffled(self.path, self.prompt_column, self.answer_column, self.data_seed)
        if len(examples) <= self.num_held_out:
            raise DataError(
                f"its {len(examples)} different prompts are too few to hold {self.num_held_out} out and train on others",
                where=self.path,
                remedy="lower task.num_held_out or add prompts",
            )
        return {Split.HELD_OUT: examples[: self.num_held_out], Split.TRAIN: examples[self.num_held_out :]}


@lru_cache(8)
def _shuffled(path: str, prompt_column: str, answer_column: str, data_seed: int) -> tuple[Example, ...]:
    """The first row of every prompt, sorted by a hash of the prompt's text; a process reads a file once."""
    first: dict[str, Example] = {}
    for number, (prompt, answer) in enumerate(rows(Path(path), columns=(prompt_column, answer_column)), start=1):
        first.setdefault(prompt, Example(f"row-{number}", prompt, answer))
    return tuple(sorted(first.values(), key=lambda example: stream_key(data_seed, "prompts.split", example.text)))
