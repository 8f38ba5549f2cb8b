"""Runtimes: where the roles of a run live. The family's base."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import Field

from scalerl.core.clock import Clock
from scalerl.core.components import Component
from scalerl.core.errors import LostRoleError, UsageError
from scalerl.engines import Engine
from scalerl.models import Model
from scalerl.objective import Objective
from scalerl.objective.length_controls import LengthControl
from scalerl.records.cost import Cost
from scalerl.records.roles import Generator, Grader, Trainer
from scalerl.tasks import Task
from scalerl.trainers import Trainer as TrainerSettings
from scalerl.trainers.warm_starts import WarmStart


@dataclass(frozen=True, slots=True)
class Setup:
    """What the roles of a run are made of; it can be pickled."""

    seed: int
    model: Model
    task: Task
    warm_start: WarmStart | None
    control: LengthControl
    prompt_tokens: int
    completion_tokens: int
    objective: Objective
    engine: Engine
    trainer: TrainerSettings
    bases: Path
    """Folder in which bases are kept by the hash of what made them."""
    checkpoint: Path | None = None
    """The checkpoint to go on from; without it the run starts at its base."""


class Restart(Protocol):
    """Puts another generator in the place of a lost one."""

    async def __call__(self, loss: LostRoleError, *, folder: Path) -> tuple[Cost, ...]:
        """Start one that loads `folder`; returns what was lost with the other, and what loading took.

        Raises:
            ScalerlError: there may be no other one.
            LostRoleError: that one is lost as well.
        """
        ...


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a run, ready to work."""

    generator: Generator
    grader: Grader
    trainer: Trainer
    base: Path
    """The folder that both loaded: base or checkpoint, with `tokenizer.json` in it."""
    costs: tuple[Cost, ...] = ()
    """Loading, and the warm start."""
    restart: Restart | None = None
    """Replaces a generator that is lost, where that can happen."""


class Runtime(Component, family="runtimes"):
    """A device is a slot declared here: the ledger books every second of every slot."""

    generator_devices: int = Field(default=1, gt=0)
    trainer_devices: int = Field(default=1, gt=0)
    threads: int = Field(default=1, gt=0)
    """Threads that each role computes with; on shared CPU cores one is the fastest."""
    usd_per_device_hour: float | None = Field(default=None, ge=0.0)
    """Price of one device for one hour; without it no dollars are booked."""

    @abstractmethod
    def launch(self, setup: Setup, *, clock: Clock) -> AbstractAsyncContextManager[Roles]:
        """Start the roles; on leaving they are ended, however the run went, and nothing of them is left."""

    def check_one_device_each(self) -> None:
        """Refuse what only a cluster has.

        Raises:
            UsageError: several devices of a role are declared.
        """
        if (self.generator_devices, self.trainer_devices) != (1, 1):
            raise UsageError(
                f"the {self.name()} runtime has one device for each role, not {self.generator_devices} and {self.trainer_devices}",
                where="runtime",
                remedy="set generator_devices and trainer_devices to 1",
            )
