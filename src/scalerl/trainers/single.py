"""One device, one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalerl.accounting.meter import Meter
from scalerl.objective.advantages import Advantage
from scalerl.objective.aggregations import Aggregation
from scalerl.objective.losses import Loss
from scalerl.trainers import Learner, Trainer

if TYPE_CHECKING:
    from scalerl.models._policy import Policy


class Single(Trainer):
    """The trainer of the laptop scale."""

    def build(
        self, policy: Policy, *, loss: Loss, advantage: Advantage, aggregation: Aggregation, temperature: float, meter: Meter
    ) -> Learner:
        """The trainer at work in this process."""
        from scalerl.trainers._single import SingleLearner

        return SingleLearner(
            policy,
            loss=loss,
            advantage=advantage,
            aggregation=aggregation,
            optimizer=self.optimizer,
            micro_batch_tokens=self.micro_batch_tokens,
            temperature=temperature,
            meter=meter,
        )
