"""The trainer at work: a learner whose weights others take. Blocking; both runtimes use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scalerl.accounting.meter import Meter
from scalerl.models._probe import Probe, scored
from scalerl.records.cost import Activity, Cost
from scalerl.records.roles import Handover, Update
from scalerl.records.rollout import Batch
from scalerl.runtimes._weights import Outbox, Part
from scalerl.trainers import Learner

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """The trainer's side of a push; without shared memory the sealed weights go along as a message."""

    handover: Handover
    message: bytearray | None


class TrainerRole:
    """Turns batches into weights, and seals these for the generator."""

    def __init__(
        self,
        learner: Learner,
        *,
        outbox: Outbox,
        pack: Callable[[Mapping[str, Tensor]], Sequence[Part]],
        probe: Probe,
        meter: Meter,
        between: Callable[[], None],
    ) -> None:
        self._learner = learner
        self._outbox = outbox
        self._pack = pack
        self._probe = probe
        self._meter = meter
        self._between = between

    def train(self, batch: Batch) -> Update:
        """One optimizer step."""
        metrics = self._learner.train(batch, between=self._between)
        return Update(self._learner.version, metrics, self._meter.collect())

    def publish_weights(self) -> Published:
        """Seal a copy of the weights in use, so that training may go on, and score the probe with them."""
        version = self._learner.version
        with self._meter.doing(Activity.PUSH, "publishing"):
            message = self._outbox.put(version, self._pack(self._learner.weights()))
            log_probs = scored(self._learner, self._probe)
        return Published(Handover(version, self._meter.collect(), log_probs), message)

    def save(self, folder: Path) -> tuple[Cost, ...]:
        """Write model, tokenizer and optimizer state into `folder`."""
        self._learner.save(folder)
        return self._meter.collect()

    def spent(self) -> tuple[Cost, ...]:
        """What was spent since it last told."""
        return self._meter.collect()
