"""Weights, gradients and optimizer state sharded over many devices (torch FSDP2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalerl.accounting.meter import Meter
from scalerl.core.errors import UsageError
from scalerl.objective import Objective
from scalerl.trainers import Learner, Trainer

if TYPE_CHECKING:
    from scalerl.models._policy import Policy


class Fsdp2(Trainer):
    """The trainer of models that one device cannot hold."""

    activation_checkpointing: bool = True
    """Whether activations are computed again in the backward pass; booked as recomputation."""

    def build(
        self,
        policy: Policy,  # noqa: ARG002
        *,
        objective: Objective,  # noqa: ARG002
        temperature: float,  # noqa: ARG002
        meter: Meter,  # noqa: ARG002
    ) -> Learner:
        """Refused: its settings can be planned with, but it does not run yet."""
        raise self.why_unusable()

    def why_unusable(self) -> UsageError:
        """It does not run yet."""
        return UsageError("the trainer 'fsdp2' does not run yet", where="trainer.type", remedy="choose 'single'")
