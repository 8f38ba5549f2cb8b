"""The roles of a run, as the orchestrator sees them.

    orchestrator --Request--> Generator --Group--> Grader --Score--> buffer --Batch--> Trainer --weights--> Generator

The orchestrator is plain asyncio without torch, threads or processes; a runtime decides where each role lives, a test
or the planner hands in fakes on a virtual clock. Methods that only tell a role something return at once; those that are
awaited may take long. Whatever a role raises that is not a `ScalerlError` is a fault of it, and ends the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scalerl.records.cost import Cost
from scalerl.records.push import Push
from scalerl.records.rollout import Batch, Group, Prompt, Score


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to sample G completions of; the id is the run's, so that a repeated request can be told."""

    group: int
    prompt: Prompt
    epoch: int
    num_completions: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a generator has to tell: finished groups, ungraded, and what it has spent since it last told."""

    groups: tuple[Group, ...]
    costs: tuple[Cost, ...] = ()
    evaluated: tuple[Group, ...] = ()
    """All groups of an evaluation that has ended, in the order of its requests."""


@dataclass(frozen=True, slots=True)
class Graded:
    """Scores of one group, one per completion in order, and what grading cost."""

    scores: tuple[Score, ...]
    costs: tuple[Cost, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """What a trainer made of a batch."""

    version: int
    """The version after the update; unchanged if nothing was left to train on."""
    metrics: dict[str, float | None]
    costs: tuple[Cost, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Handover:
    """One side of a weight push: what it cost, and how that side scores the probe under the new weights.

    The probe is a fixed set of sequences. The difference between the two sides, and only that, is called mismatch.
    """

    version: int
    costs: tuple[Cost, ...] = ()
    probe_log_probs: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    """(tokens of the probe,) log-probability of every completion token, in nats; empty where there is no probe."""
    push: Push | None = None
    """What the push met; None on the trainer's side."""


class Generator(Protocol):
    """Samples completions, and takes new weights while it does.

    What is awaited raises LostRoleError once the generator is gone; what it is told then is heard by nobody.
    """

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests, in order; those of one call are admitted as if they had come at one moment."""
        ...

    def allow(self, num_groups: int) -> None:
        """Grant room for so many more finished groups; without room the generator stands still between decode steps."""
        ...

    def cancel(self, groups: Collection[int]) -> None:
        """Give up requests; nothing happens to those that are unknown or done."""
        ...

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        """Sample `requests` with the weights in use now, whatever is pushed meanwhile, beside everything else; one at a time."""
        ...

    async def finished(self) -> Sampled:
        """The next finished groups, in the order in which they finished, or a finished evaluation, or both."""
        ...

    async def take_weights(self, version: int) -> Handover:
        """Switch to the weights of `version`, which the trainer has published, at a decode-step boundary."""
        ...

    async def spent(self) -> tuple[Cost, ...]:
        """What was spent since the generator last told."""
        ...


class Grader(Protocol):
    """Scores completions; a failure of its own is a score without a value, never an exception and never zero."""

    async def grade(self, group: Group) -> Graded:
        """One score per completion of `group`, in order."""
        ...


class Trainer(Protocol):
    """Turns batches into weights."""

    async def train(self, batch: Batch) -> Update:
        """One optimizer step on the groups of the batch, oldest first."""
        ...

    async def publish_weights(self) -> Handover:
        """Put the weights in use where generators take them from."""
        ...

    async def save(self, folder: Path) -> tuple[Cost, ...]:
        """Write model, tokenizer and optimizer state into `folder`, which exists and is empty."""
        ...

    async def spent(self) -> tuple[Cost, ...]:
        """What was spent since the trainer last told."""
        ...


class Store(Protocol):
    """Keeps checkpoints; a checkpoint exists as a whole or not at all."""

    def begin(self, step: int) -> Path:
        """An empty folder for the checkpoint of `step`, which is no checkpoint yet."""
        ...

    def commit(self, step: int, state: bytes) -> None:
        """Add the loop's `state` to what lies in the folder of `step`, and make it a checkpoint."""
        ...
