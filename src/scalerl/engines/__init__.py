"""Engines: what samples tokens. The family's base."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from scalerl.accounting.meter import Meter
from scalerl.core.components import Component
from scalerl.objective.length_controls import LengthControl
from scalerl.records.push import Push
from scalerl.records.roles import Request
from scalerl.records.rollout import Group

if TYPE_CHECKING:
    from torch import Tensor

    from scalerl.models._policy import Policy

TokenIds = tuple[int, ...]


class DecodeLoop(Protocol):
    """An engine at work: blocking, one decode step at a time, so that its process can listen in between.

    It books its work (generate, re-prefill, evaluate) with the meter that it was built with.
    """

    @property
    def version(self) -> int:
        """The weights in use."""
        ...

    @property
    def last_push(self) -> Push:
        """What the latest `take_weights` met; how long it took is for its caller to measure."""
        ...

    @property
    def num_in_flight(self) -> int:
        """Groups submitted and not yet returned."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests; they are admitted in order, whole groups at a time."""
        ...

    def cancel(self, groups: Collection[int]) -> None:
        """Forget requests, those that are unknown or done excepted."""
        ...

    def step(self) -> list[Group]:
        """Admit what there is room for, sample one token for every row, and return the groups that finished, in order."""
        ...

    def take_weights(self, version: int, tensors: Mapping[str, Tensor], *, between: Callable[[], None]) -> list[Group]:
        """Switch to new weights between two steps; what happens to requests in flight is the engine's `kv`.

        Returns the groups that finished on the way: with `drain` the requests in flight end under the old weights first,
        and `between` is called after each of their steps.
        """
        ...

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        """Begin to sample `requests`, one or more, with the weights in use now, which later pushes do not change; one at a time."""
        ...

    def step_evaluation(self) -> list[Group]:
        """Sample one token for every row of the evaluation, and return the groups that finished, until all of them have."""
        ...

    def evaluate(self, requests: Sequence[Request], *, between: Callable[[], None]) -> list[Group]:
        """All groups of `requests` under the weights in use; requests in flight stand still. Calls `between` after each step."""
        ...

    def score(self, probe: Sequence[tuple[TokenIds, TokenIds]]) -> NDArray[np.float32]:
        """Log-probability in nats of every token of the second parts, one after the other, computed as sampling computes it."""
        ...


class Engine(Component, family="engines"):
    """A generator that takes new weights while requests are in flight."""

    kv: Literal["keep", "reprefill", "drain"] = "keep"
    """What happens to the cache of a request in flight when weights change: keep it (stale, bounded by one completion), compute
    it anew with the new weights, or let the request finish first. New requests never see keys of older weights."""
    temperature: float = Field(default=1.0, gt=0.0)
    """Divides the logits on both sides; log-probs are those of the distribution that was sampled."""
    slots: int = Field(default=256, gt=0)
    """Completions decoded at once."""

    @abstractmethod
    def build(
        self,
        policy: Policy,
        *,
        control: LengthControl,
        completion_tokens: int,
        seed: int,
        meter: Meter,
        prompt_tokens: int | None = None,
    ) -> DecodeLoop:
        """The engine at work on `policy`, whose weights it takes as version 0 until told otherwise.

        Args:
            control: interrupts completions.
            completion_tokens: largest completion, inserted tokens included.
            seed: of the run; a draw depends on it, the prompt, the epoch, the completion and the position alone.
            meter: books the work.
            prompt_tokens: largest prompt; without it prompts may be as long as the model has positions for.
        """
