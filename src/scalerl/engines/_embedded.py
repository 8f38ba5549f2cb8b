"""The embedded engine at work: requests in flight decode together, and weights change between two steps.

What a push does to the caches of requests in flight (arXiv 2510.13786 and PipelineRL, arXiv 2509.19128, keep them):

    keep        nothing: later tokens attend to keys of older weights, for the life of one completion at most
    reprefill   they are computed anew under the new weights, all tokens but the last, booked apart
    drain       the completions end under the old weights first; queued requests wait and start under the new ones

New requests never see keys of older weights, whatever the policy: a prompt is prefilled when it is admitted, and only the
completions of its own group share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from scalerl.accounting.meter import Meter
from scalerl.core.errors import UsageError
from scalerl.engines import Engine, TokenIds
from scalerl.engines._flight import Decoding, Flight
from scalerl.engines._insertion import Insertion
from scalerl.engines._scoring import score
from scalerl.models._policy import Policy
from scalerl.objective.length_controls import LengthControl
from scalerl.records.cost import Activity
from scalerl.records.roles import Request
from scalerl.records.rollout import Group


class EmbeddedLoop:
    """`DecodeLoop` on a policy that nobody else uses."""

    def __init__(
        self, settings: Engine, policy: Policy, *, control: LengthControl, completion_tokens: int, seed: int, meter: Meter
    ) -> None:
        _check_attention(policy)
        policy.cache_head()
        self._kv = settings.kv
        self._policy = policy
        self._meter = meter
        self._decoding = Decoding(
            temperature=settings.temperature,
            completion_tokens=completion_tokens,
            insertion=Insertion.of(control, policy, completion_tokens=completion_tokens),
            seed=seed,
            slots=settings.slots,
        )
        self._flight = Flight(policy, self._decoding, purpose="sample", activity=Activity.GENERATE, meter=meter)
        self._queue: deque[Request] = deque()
        self._version = 0

    @property
    def version(self) -> int:
        """The weights in use."""
        return self._version

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
            return self._flight.step(self._queue, version=self._version)

    def take_weights(self, version: int, tensors: Mapping[str, Tensor], *, between: Callable[[], None]) -> list[Group]:
        """Switch to the weights `tensors`; returns what `drain` finishes first."""
        finished = self._drain(between) if self._kv == "drain" else []
        self._policy.load_tensors(tensors)
        self._version = version
        if self._kv == "reprefill":
            with self._meter.doing(Activity.REPREFILL):
                self._flight.refresh()
        return finished

    def evaluate(self, requests: Sequence[Request], *, between: Callable[[], None]) -> list[Group]:
        """All groups of `requests`, in their order.

        Draws come from a stream of their own, keyed by prompt and epoch: two evaluations with the same epochs have common random
        numbers, whatever the weights; two with other epochs have independent errors.
        """
        self._check_requests(requests)
        flight = Flight(self._policy, self._decoding, purpose="evaluate", activity=Activity.EVALUATE, meter=self._meter)
        queue, finished = deque(requests), dict[int, Group]()
        while queue or flight.num_groups:
            with self._meter.doing(Activity.EVALUATE):
                finished.update((group.id, group) for group in flight.step(queue, version=self._version))
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
        num_positions = getattr(self._policy.config, "max_position_embeddings", None)
        completion_tokens = self._decoding.completion_tokens
        for request in requests:
            prompt_tokens = len(request.prompt.token_ids)
            assert prompt_tokens, "a prompt has tokens"
            if num_positions is not None and prompt_tokens + completion_tokens > num_positions:
                raise UsageError(
                    f"a prompt of {prompt_tokens} tokens and a completion of {completion_tokens} exceed the {num_positions} of the model",
                    where="length",
                    remedy="lower length.completion_tokens or length.prompt_tokens, or choose a model of longer sequences",
                )
            if request.num_completions > self._decoding.slots:
                raise UsageError(
                    f"{self._decoding.slots} slots cannot hold a group of {request.num_completions} completions",
                    where="engine.slots",
                    remedy="raise it to batch.group at least",
                )


def _check_attention(policy: Policy) -> None:
    """Refuse a model whose layers do not attend to all that came before: the cache knows no other kind."""
    kinds = set(getattr(policy.config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or getattr(policy.config, "sliding_window", None) is not None:
        raise UsageError(
            f"this model has layers of {', '.join(sorted(kinds)) or 'sliding_attention'}",
            where="engine.type",
            remedy="choose a model with full attention in every layer",
        )
