"""The embedded engine at work: requests in flight decode together, and weights change between two steps.

What a push does to the caches of requests in flight (arXiv 2510.13786 and PipelineRL, arXiv 2509.19128, keep them):

    keep        nothing: later tokens attend to keys of older weights, for the life of one completion at most
    reprefill   they are computed anew under the new weights, all tokens but the last, a prompt once for its group; booked apart
    drain       the completions end under the old weights first; queued requests wait and start under the new ones

New requests never see keys of older weights, whatever the policy: a prompt is prefilled when it is admitted, and only the
completions of its own group share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from scalerl.accounting.meter import Meter
from scalerl.core.errors import UsageError
from scalerl.engines import TokenIds
from scalerl.engines._drift import DriftProbe
from scalerl.engines._flight import Decoding, Flight
from scalerl.engines._requests import check_requests
from scalerl.engines._scoring import score
from scalerl.engines.embedded import Embedded
from scalerl.models._policy import Policy
from scalerl.objective.length_controls import LengthControl
from scalerl.records.cost import Activity
from scalerl.records.push import Push
from scalerl.records.roles import Request
from scalerl.records.rollout import Group


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """Held-out requests, and the weights that sample them."""

    flight: Flight
    queue: deque[Request]
    version: int


class EmbeddedLoop:
    """`DecodeLoop` on a policy that nobody else uses."""

    def __init__(
        self, settings: Embedded, policy: Policy, *, control: LengthControl, completion_tokens: int, seed: int, meter: Meter
    ) -> None:
        _check_attention(policy)
        policy.cache_head()
        self._kv = settings.kv
        self._policy = policy
        self._meter = meter
        self._decoding = Decoding.of(settings, policy, control=control, completion_tokens=completion_tokens, seed=seed)
        self._flight = Flight(policy, self._decoding, purpose="sample", activity=Activity.GENERATE, meter=meter)
        self._evaluation: _Evaluation | None = None
        self._drift = None if settings.kv == "drain" else DriftProbe(policy, settings.drift, self._decoding, kv=settings.kv, meter=meter)
        self._queue: deque[Request] = deque()
        self._version = 0
        self._last_push = Push()

    @property
    def version(self) -> int:
        """The weights in use."""
        return self._version

    @property
    def last_push(self) -> Push:
        """What the latest `take_weights` met."""
        return self._last_push

    @property
    def num_in_flight(self) -> int:
        """Groups submitted and not yet returned."""
        return len(self._queue) + self._flight.num_groups

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests, admitted in order.

        Raises:
            UsageError: a group has more completions than there are slots, or the model has too few positions.
        """
        self._check_requests(requests)
        self._queue.extend(requests)

    def cancel(self, groups: Collection[int]) -> None:
        """Forget requests, queued or in flight."""
        self._queue = deque(request for request in self._queue if request.group not in groups)
        self._flight.cancel(groups)

    def step(self) -> list[Group]:
        """One token for every row; the tokens booked are the sampled ones."""
        with self._meter.doing(Activity.GENERATE):
            finished = self._flight.step(self._queue, version=self._version)
        if self._drift is not None:
            self._drift.take_leave(finished)
        return finished

    def take_weights(self, version: int, tensors: Mapping[str, Tensor], *, between: Callable[[], None]) -> list[Group]:
        """Switch to the weights `tensors`; returns what `drain` finishes first."""
        drift = None if self._drift is None else self._drift.measure(self._flight.traces(), version=self._version)
        self._last_push = replace(self._flight.met(), drift=drift)
        finished = self._drain(between) if self._kv == "drain" else []
        if self._evaluation is not None:
            self._evaluation.flight.freeze()
        self._policy.load_tensors(tensors)
        self._version = version
        if self._kv == "reprefill":
            with self._meter.doing(Activity.REPREFILL):
                self._flight.refresh()
        return finished

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        """Freeze the weights in use for `requests`; they are copied if others come before the last of them has ended.

        Draws come from a stream of their own, keyed by prompt and epoch: two evaluations with the same epochs have common random
        numbers, whatever the weights; two with other epochs have independent errors.
        """
        assert self._evaluation is None, "one evaluation at a time"
        self._check_requests(requests)
        flight = Flight(self._policy, self._decoding, purpose="evaluate", activity=Activity.EVALUATE, meter=self._meter)
        self._evaluation = _Evaluation(flight, deque(requests), self._version)

    def step_evaluation(self) -> list[Group]:
        """One token for every row of the evaluation; the groups that this finished."""
        running = self._evaluation
        assert running is not None, "an evaluation was begun"
        with self._meter.doing(Activity.EVALUATE):
            finished = running.flight.step(running.queue, version=running.version)
        if not running.queue and not running.flight.num_groups:
            self._evaluation = None
        return finished

    def evaluate(self, requests: Sequence[Request], *, between: Callable[[], None]) -> list[Group]:
        """All groups of `requests`, in their order."""
        self.begin_evaluation(requests)
        finished: dict[int, Group] = {}
        while self._evaluation is not None:
            finished.update((group.id, group) for group in self.step_evaluation())
            between()
        return [finished[request.group] for request in requests]

    def score(self, probe: Sequence[tuple[TokenIds, TokenIds]]) -> NDArray[np.float32]:
        """The probe under the weights in use, by the passes that sampling makes; booked as part of the push."""
        return score(self._policy, probe, temperature=self._decoding.temperature, meter=self._meter)

    def _drain(self, between: Callable[[], None]) -> list[Group]:
        """Let the groups in flight end; the queue waits."""
        finished: list[Group] = []
        while self._flight.num_groups:
            with self._meter.doing(Activity.GENERATE):
                finished += self._flight.step(deque(), version=self._version)
            between()
        return finished

    def _check_requests(self, requests: Sequence[Request]) -> None:
        check_requests(requests, self._decoding, max_tokens=getattr(self._policy.config, "max_position_embeddings", None))


def _check_attention(policy: Policy) -> None:
    """Refuse a model whose layers do not attend to all that came before: the cache knows no other kind."""
    kinds = set(getattr(policy.config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or getattr(policy.config, "sliding_window", None) is not None:
        raise UsageError(
            f"this model has layers of {', '.join(sorted(kinds)) or 'sliding_attention'}",
            where="engine.type",
            remedy="choose a model with full attention in every layer",
        )
