"""Generator and trainer as the orchestrator sees them, over a link of any runtime."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from scalerl.records.cost import Cost
from scalerl.records.roles import Handover, Request, Sampled, Update
from scalerl.records.rollout import Batch
from scalerl.runtimes._link import Link
from scalerl.runtimes._trainer import Published


@dataclass(slots=True)
class Transit:
    """The weights last published, where they travel as a message."""

    message: bytearray | None = None


class GeneratorProxy:
    """Implements `records.roles.Generator`."""

    def __init__(self, link: Link, *, transit: Transit) -> None:
        self.link = link
        """To whichever generator lives."""
        self._transit = transit

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests, in order; those of one call are admitted as if they had come at one moment."""
        self.link.tell("submit", tuple(requests))

    def allow(self, num_groups: int) -> None:
        """Grant room for so many more finished groups."""
        self.link.tell("allow", num_groups)

    def cancel(self, groups: Collection[int]) -> None:
        """Give up requests."""
        self.link.tell("cancel", frozenset(groups))

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        """Sample `requests` with the weights in use now, beside everything else."""
        self.link.tell("begin_evaluation", tuple(requests))

    async def finished(self) -> Sampled:
        """The next finished groups, or a finished evaluation, or both."""
        sampled: Sampled = await self.link.news()
        return sampled

    async def take_weights(self, version: int) -> Handover:
        """Switch to the weights of `version`, which the trainer has published."""
        handover: Handover = await self.link.ask("take_weights", version, self._transit.message)
        return handover

    async def spent(self) -> tuple[Cost, ...]:
        """What was spent since the generator last told."""
        costs: tuple[Cost, ...] = await self.link.ask("spent")
        return costs


class TrainerProxy:
    """Implements `records.roles.Trainer`."""

    def __init__(self, link: Link, *, transit: Transit) -> None:
        self._link = link
        self._transit = transit

    async def train(self, batch: Batch) -> Update:
        """One optimizer step on the groups of the batch."""
        update: Update = await self._link.ask("train", batch)
        return update

    async def publish_weights(self) -> Handover:
        """Put the weights in use where generators take them from."""
        published: Published = await self._link.ask("publish_weights")
        self._transit.message = published.message
        return published.handover

    async def save(self, folder: Path) -> tuple[Cost, ...]:
        """Write model, tokenizer and optimizer state into `folder`."""
        costs: tuple[Cost, ...] = await self._link.ask("save", folder)
        return costs

    async def spent(self) -> tuple[Cost, ...]:
        """What was spent since the trainer last told."""
        costs: tuple[Cost, ...] = await self._link.ask("spent")
        return costs
