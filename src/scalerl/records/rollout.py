"""Prompts, completions, scores, groups and batches: the life of a token, as records.

    task --> Prompt --> Completion (sampled) --> Score (graded) --> Group (all completions of a prompt) --> Batch (P groups)

P prompts, G completions per prompt, T tokens of a completion (unpadded).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Outcome(StrEnum):
    """How grading a completion ended. Only FAILED leaves it without a value: absence is not zero."""

    GRADED = "graded"
    UNPARSED = "unparsed"
    """No answer was found: the task's minimum."""
    CUT_OFF = "cut_off"
    """The budget ended before an answer: the task's minimum."""
    TIMED_OUT = "timed_out"
    """The answer kept a healthy grader busy for too long: the task's minimum."""
    UNSAFE = "unsafe"
    """The answer attacked the grader: the task's minimum."""
    FAILED = "failed"
    """The grader failed, not the answer: no value; the completion leaves baseline, loss and denominators, and is counted."""


@dataclass(frozen=True, slots=True)
class Score:
    """A grade. `value` feeds loss and variance filter, `passed` curve, selector and pass@k."""

    value: float | None
    passed: bool | None
    outcome: Outcome = Outcome.GRADED
    parts: Mapping[str, float] = field(default_factory=dict)
    """Raw parts of a composite value, by name."""

    def __post_init__(self) -> None:
        failed = self.outcome is Outcome.FAILED
        assert (self.value is None, self.passed is None) == (failed, failed), "a failed grading, and only that, has no value"
        assert self.value is None or math.isfinite(self.value), "a score is a finite number"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question of a task."""

    id: str
    """Unique within the run; randomness and resume go by it."""
    task: str
    text: str
    token_ids: tuple[int, ...]
    answer: str
    """The gold answer, for the grader alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """One sampled answer, token by token."""

    index: int
    """Which of the group's G completions this is."""
    token_ids: NDArray[np.int32]
    """(T,) ids as sampled or inserted; never tokenised again."""
    log_probs: NDArray[np.float32]
    """(T,) log-probability in nats of each sampled token under the version that sampled it, at the sampling temperature."""
    trainable: NDArray[np.bool_]
    """(T,) False for inserted tokens (interruption, tools): they leave loss and token counts."""
    version_runs: tuple[tuple[int, int], ...]
    """(version, number of tokens) in order: which weights sampled which tokens."""
    finished: bool
    """Whether it stopped by itself, rather than at its budget."""
    text: str = ""
    """The tokens as text, special ones left out: what graders read."""
    score: Score | None = None
    """None until graded."""

    def __post_init__(self) -> None:
        num_tokens = self.token_ids.size
        lengths = (self.log_probs.size, self.trainable.size, sum(number for _, number in self.version_runs))
        if any(length != num_tokens for length in lengths):
            # Filled up with zeros, tokens would be trained on with ratios of their own log-probs.
            raise ValueError(f"{num_tokens} tokens do not go with {lengths} log-probs, marks and versions")

    @property
    def first_version(self) -> int:
        """The version that sampled the first token; the completion's age counts from it."""
        return self.version_runs[0][0]

    @property
    def last_version(self) -> int:
        """The version that sampled the last token."""
        return self.version_runs[-1][0]

    @property
    def num_inserted(self) -> int:
        """Tokens that are not the policy's."""
        return int(self.trainable.size - np.count_nonzero(self.trainable))

    def untrained(self) -> Completion:
        """The completion without a trainable token: it leaves loss and token counts, and keeps its score."""
        return replace(self, trainable=np.zeros_like(self.trainable))


@dataclass(frozen=True, slots=True)
class Group:
    """All completions of one prompt in one epoch."""

    id: int
    prompt: Prompt
    epoch: int
    completions: tuple[Completion, ...]

    @property
    def first_version(self) -> int:
        """The version that sampled the oldest first token; the group's age counts from it."""
        return min(completion.first_version for completion in self.completions)

    @property
    def tally(self) -> tuple[int, int]:
        """(passed, graded) completions; those whose grading failed are in neither."""
        verdicts = [completion.score.passed for completion in self.completions if completion.score is not None]
        return verdicts.count(True), len(verdicts) - verdicts.count(None)

    @property
    def has_failed(self) -> bool:
        """Whether none of the completions could be graded."""
        return all(completion.score is None or completion.score.value is None for completion in self.completions)

    def scored(self, scores: Sequence[Score]) -> Group:
        """The group with one score per completion, in order."""
        graded = tuple(replace(completion, score=score) for completion, score in zip(self.completions, scores, strict=True))
        return replace(self, completions=graded)

    def age(self, version: int) -> int:
        """Versions between the oldest first token and the `version` that the trainer is about to update."""
        return version - self.first_version


@dataclass(frozen=True, slots=True)
class Batch:
    """The groups of one optimizer step, oldest first."""

    step: int
    groups: tuple[Group, ...]
