"""Tasks: prompts, their split, and the grader that belongs to them. The family's base."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from pydantic import Field

from scalerl.core.components import Component
from scalerl.core.errors import DataError
from scalerl.graders import Grader
from scalerl.records.rollout import Completion, Prompt


class Split(StrEnum):
    """The two disjoint sets of prompts of a task."""

    TRAIN = "train"
    HELD_OUT = "held_out"


@dataclass(frozen=True, slots=True)
class Example:
    """A question with its gold answer, before tokenisation."""

    id: str
    """Unique within the task, both splits together."""
    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class Noise:
    """How imperfect demonstrations are."""

    error_rate: float = 0.0
    """Probability that a step of a demonstration, or its answer, is wrong."""
    direct_share: float = 0.0
    """Share of the demonstrations that answer without thinking."""


class Task(Component, family="tasks"):
    """Where prompts come from; every task can show that its gold answers score."""

    num_held_out: int = Field(default=1024, gt=0)
    """Prompts set apart for evaluation, never trained on."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of prompts made on the fly; runs of other seeds are evaluated on the same prompts."""

    @abstractmethod
    def examples(self, split: Split) -> Sequence[Example]:
        """The examples of a split, the same on every machine; no text lies in both splits."""

    @abstractmethod
    def grader(self) -> Grader:
        """Who scores the completions."""

    def gold_completion(self, example: Example) -> str | None:
        """A completion that states the gold answer and nothing else; None where the example has no answer that counts."""
        return example.answer

    def check_gold_answers(self, *, num_examples: int = 64) -> None:
        """Grade the gold answers of the first `num_examples` of either split.

        Raises:
            DataError: the task's own grader rejects one, so that no policy could ever score on it.
        """
        grader = self.grader()
        for split in Split:
            for example in self.examples(split)[:num_examples]:
                gold = self.gold_completion(example)
                if gold is not None and not grader.grade(_prompt(self, example), _stopped(gold)).passed:
                    raise DataError(
                        f"its grader '{grader.name()}' rejects the gold answer {example.answer[:60]!r} of example '{example.id}'",
                        where=f"task '{self.name()}'",
                        remedy="choose a grader that reads such answers, or mend the data",
                    )

    def alphabet(self) -> str | None:
        """The characters of a tokenizer made for the task; None where only a model's own tokenizer will do."""
        return None

    def demonstration(self, example: Example, *, noise: Noise, draw: Callable[[], float]) -> str | None:
        """A completion of `example` that a warm start imitates; `draw` gives uniform numbers in [0, 1).

        None where the task cannot write any.
        """
        return None

    def ceiling(self) -> float | None:
        """The largest held-out pass rate that any policy can reach, where it can be proved."""
        return None

    def doubts_about_base(self, graded: Sequence[tuple[Example, Completion]]) -> str | None:
        """Why RL from a base that gave these graded held-out completions cannot be expected to work; None if it can.

        A sentence that names what was measured and what was expected.
        """
        return None


def _prompt(task: Task, example: Example) -> Prompt:
    return Prompt(id=example.id, task=task.name(), text=example.text, token_ids=(), answer=example.answer)


def _stopped(text: str) -> Completion:
    """A completion that says `text` and stopped by itself, for graders, which read no tokens."""
    return Completion(
        index=0,
        token_ids=np.zeros(0, np.int32),
        log_probs=np.zeros(0, np.float32),
        trainable=np.zeros(0, np.bool_),
        version_runs=(),
        finished=True,
        text=text,
    )
