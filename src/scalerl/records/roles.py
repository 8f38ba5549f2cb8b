"""The roles of a run, as the orchestrator sees them: blocking work behind awaitables.

The orchestrator is plain asyncio without torch, threads or processes; a runtime decides where each role lives, a test
or the planner hands in fakes on a virtual clock. Whatever a role raises that is not a `ScalerlError` is a fault of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scalerl.records.cost import Cost
from scalerl.records.rollout import Batch, Completion, Group, Prompt, Score


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to sample G completions of; ids are the run's, so that a repeated request can be told."""

    group: int
    prompt: Prompt
    epoch: int
    num_completions: int


@dataclass(frozen=True, slots=True)
class Update:
    """What a trainer made of a batch."""

    version: int
    """The version after the update; unchanged if nothing was left to train on."""
    metrics: dict[str, float]
    costs: tuple[Cost, ...]


class Generator(Protocol):
    """Samples completions, and takes new weights while it does."""

    async def generate(self, request: Request) -> Group:
        """The group of `request`, ungraded, with log-prob and version of every token."""
        ...

    async def take_weights(self, version: int) -> tuple[Cost, ...]:
        """Switch to the weights of `version` at a decode-step boundary; returns when they are in use everywhere."""
        ...

    async def cancel(self, group: int) -> None:
        """Give up a request; nothing happens if it is unknown or done."""
        ...


class Grader(Protocol):
    """Scores completions; a failure of its own is a score without a value, never an exception and never zero."""

    async def grade(self, prompt: Prompt, completions: Sequence[Completion]) -> tuple[tuple[Score, ...], tuple[Cost, ...]]:
        """One score per completion, in order, and what grading cost."""
        ...


class Trainer(Protocol):
    """Turns batches into weights."""

    async def train(self, batch: Batch) -> Update:
        """One optimizer step on the batch, oldest group first."""
        ...

    async def publish_weights(self, version: int) -> tuple[Cost, ...]:
        """Put the weights of `version` where generators take them from."""
        ...


class Store(Protocol):
    """Keeps checkpoints; a checkpoint exists as a whole or not at all."""

    async def save(self, step: int, seq: int, state: bytes) -> None:
        """Write the trainer's state and the loop's `state` as captured at event `seq`."""
        ...
