"""One device, one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalerl.accounting.meter import Meter
from scalerl.objective import Objective
from scalerl.trainers import Learner, Trainer

if TYPE_CHECKING:
    from scalerl.models._policy import Policy


class Single(Trainer):
    """The trainer of the laptop scale."""

    def build(self, policy: Policy, *, objective: Objective, temperature: float, meter: Meter) -> Learner:
        """The trainer at work in this process."""
        from scalerl.trainers._single import SingleLearner

        return SingleLearner(policy, self, objective=objective, temperature=temperature, meter=meter)
