"""Warm starts: how a base that can already score sometimes is made before RL. The family's base."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from scalerl.accounting.meter import Meter
from scalerl.core.components import Component
from scalerl.tasks import Task

if TYPE_CHECKING:
    from scalerl.models._policy import Policy


class WarmStart(Component, family="warm_starts"):
    """Pre-training before the run, cached by its settings and booked as such."""

    @abstractmethod
    def train(self, policy: Policy, task: Task, *, seed: int, meter: Meter, between: Callable[[], None]) -> None:
        """Train `policy` in place; calls `between` after each step.

        Raises:
            UsageError: the task cannot write demonstrations.
        """
