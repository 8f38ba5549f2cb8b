"""Supervised steps on noisy demonstrations that the task writes: an imperfect base on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.accounting.meter import Meter
from scalerl.tasks import Task
from scalerl.trainers.warm_starts import WarmStart

if TYPE_CHECKING:
    from scalerl.models._policy import Policy


class Demonstrations(WarmStart):
    """First clean-ish full demonstrations, which teach the task, then messy ones, which spoil how often it is done right."""

    steps: int = Field(default=400, gt=0)
    """Steps on full demonstrations."""
    messy_steps: int = Field(default=200, ge=0)
    """Steps on messy ones afterwards."""
    batch: int = Field(default=128, gt=0)
    """Demonstrations per step."""
    learning_rate: float = Field(default=3e-3, gt=0.0)
    messy_learning_rate: float = Field(default=1e-3, gt=0.0)
    error_rate: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Probability that a step of a full demonstration is wrong."""
    messy_error_rate: float = Field(default=0.1, ge=0.0, lt=1.0)
    """The same of messy ones."""
    direct_share: float = Field(default=0.75, ge=0.0, le=1.0)
    """Share of the messy demonstrations that answer without thinking."""

    def train(self, policy: Policy, task: Task, *, seed: int, meter: Meter, between: Callable[[], None]) -> None:
        """Both kinds of steps, one after the other."""
        from scalerl.trainers.warm_starts._demonstrations import imitate

        imitate(self, policy, task, seed=seed, meter=meter, between=between)
