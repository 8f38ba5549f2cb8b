"""The generator at work: an engine that decodes while there is room for what it finishes. Blocking; both runtimes use it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scalerl.accounting.meter import Meter
from scalerl.engines import DecodeLoop
from scalerl.models._probe import Probe, scored
from scalerl.records.cost import Activity, Cost
from scalerl.records.push import DRIFT_PROBE
from scalerl.records.roles import Handover, Request, Sampled
from scalerl.records.rollout import Group
from scalerl.runtimes._weights import Inbox

if TYPE_CHECKING:
    from torch import Tensor


class GeneratorRole:
    """Decodes one step at a time, so that its surroundings can listen in between; its methods answer at once."""

    def __init__(
        self,
        engine: DecodeLoop,
        *,
        inbox: Inbox,
        unpack: Callable[[memoryview], Mapping[str, Tensor]],
        probe: Probe,
        meter: Meter,
        between: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._inbox = inbox
        self._unpack = unpack
        self._probe = probe
        self._meter = meter
        self._between = between
        self._room = 0
        self._outbox: deque[Group] = deque()
        self._num_to_evaluate = 0
        """Groups of the evaluation that are not finished."""
        self._evaluated: list[Group] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests; those of one call come at one moment."""
        self._engine.submit(requests)

    def allow(self, num_groups: int) -> None:
        """Grant room for so many more finished groups."""
        self._room += num_groups

    def cancel(self, groups: Collection[int]) -> None:
        """Give up requests, also those that are finished and wait for room."""
        self._engine.cancel(groups)
        self._outbox = deque(group for group in self._outbox if group.id not in groups)

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        """Sample `requests` with the weights in use now, room or not."""
        self._num_to_evaluate = len(requests)
        self._engine.begin_evaluation(requests)

    @property
    def waits_for(self) -> str:
        """What keeps it from decoding; empty while it can."""
        return "" if self._num_to_evaluate else self._training_waits_for

    def step(self) -> None:
        """One decode step. Groups that finish beyond the room stay here, and no more of them are decoded until there is room."""
        if self._num_to_evaluate:
            finished = self._engine.step_evaluation()
            self._num_to_evaluate -= len(finished)
            self._evaluated += finished
        if not self._training_waits_for:
            self._outbox.extend(self._engine.step())

    def sampled(self) -> Sampled | None:
        """The finished groups that there is room for, each of which uses up some, and a finished evaluation; None if there is nothing."""
        num_groups = min(self._room, len(self._outbox))
        evaluated: tuple[Group, ...] = ()
        if not self._num_to_evaluate:
            evaluated, self._evaluated = tuple(sorted(self._evaluated, key=lambda group: group.id)), []
        if not num_groups and not evaluated:
            return None
        self._room -= num_groups
        return Sampled(tuple(self._outbox.popleft() for _ in range(num_groups)), self._meter.collect(), evaluated)

    def take_weights(self, version: int, message: bytearray | None) -> Handover:
        """Switch to `version`, which lies in memory or comes as a `message`, and score the probe with it.

        Raises:
            ScalerlError: the weights are of another version or not whole.
        """
        with self._meter.doing(Activity.PUSH, "taking"):
            began_s, probed_s = self._meter.clock.now_s(), self._meter.total_s(Activity.PUSH, DRIFT_PROBE)
            with self._inbox.opened(version, message) as content:
                self._outbox.extend(self._engine.take_weights(version, self._unpack(content), between=self._between))
            waited_s = self._meter.clock.now_s() - began_s - (self._meter.total_s(Activity.PUSH, DRIFT_PROBE) - probed_s)
            log_probs = scored(self._engine, self._probe)
        return Handover(version, self._meter.collect(), log_probs, replace(self._engine.last_push, waited_s=max(waited_s, 0.0)))

    def spent(self) -> tuple[Cost, ...]:
        """What was spent since it last told."""
        return self._meter.collect()

    @property
    def _training_waits_for(self) -> str:
        if not self._room:
            return "buffer full"
        return "" if self._engine.num_in_flight else "no requests"
