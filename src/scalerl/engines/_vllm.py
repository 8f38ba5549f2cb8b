"""The vLLM engine at work: completions in flight here, their tokens from a process in which vLLM runs.

What a push does to completions in flight is made of two calls, both between two steps of vLLM, so that no pause is needed:

    keep        load                their blocks stay, and their later tokens attend to keys of older weights
    reprefill   load, forget keys   the next step computes them anew
    drain       load                they end first

New requests never see keys of older weights: each load has a cache salt of its own, and what vLLM has not begun is sent again
under the new one. One set of weights is all there is: a push waits for an evaluation in flight.

Whatever is in flight takes part in every step, whoever asks for it: training goes on while an evaluation or the probe is
sampled, and what it finishes is returned by the next `step`. Where a completion is interrupted, vLLM is started again or
runs short of blocks, what comes before is computed anew under the weights in use, with `keep` too.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from scalerl.accounting.flops import causal_pairs
from scalerl.accounting.meter import Meter
from scalerl.engines import TokenIds
from scalerl.engines._flight import Decoding
from scalerl.engines._requests import check_requests
from scalerl.engines._vllm_calls import Piece, Token
from scalerl.engines._vllm_line import Line, Work
from scalerl.engines._vllm_start import start_of
from scalerl.engines._vllm_traces import Trace, Traces
from scalerl.engines._vllm_weights import share
from scalerl.engines.vllm import Vllm
from scalerl.models._policy import Policy
from scalerl.objective.length_controls import LengthControl
from scalerl.records.cost import Activity
from scalerl.records.push import Push
from scalerl.records.roles import Request
from scalerl.records.rollout import Group

_PROBE = "probe"
"""What the books call it, on either side of a push."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Asked(Work):
    """A token of the probe, whose log-probability is asked for."""

    token_ids: TokenIds
    """Those before it."""
    scored_id: int
    answer: Token | None = None

    def piece(self, *, name: str, salt: str) -> Piece:
        """One token after those before it, whichever is sampled."""
        return Piece(name, self.token_ids, max_tokens=1, seed=0, salt=salt, scored_id=self.scored_id)


class VllmLoop:
    """`DecodeLoop` on a policy that nobody else uses."""

    def __init__(
        self,
        settings: Vllm,
        policy: Policy,
        *,
        control: LengthControl,
        prompt_tokens: int | None,
        completion_tokens: int,
        seed: int,
        meter: Meter,
    ) -> None:
        self._kv = settings.kv
        self._policy = policy
        self._meter = meter
        self._decoding = Decoding.of(settings, policy, control=control, completion_tokens=completion_tokens, seed=seed)
        self._training = Traces(policy, self._decoding, purpose="sample", activity=Activity.GENERATE, meter=meter)
        self._evaluation = Traces(policy, self._decoding, purpose="evaluate", activity=Activity.EVALUATE, meter=meter)
        self._version = 0
        self._last_push = Push()
        descriptor = os.memfd_create("scalerl-vllm")
        weakref.finalize(self, os.close, descriptor)
        self._start = start_of(
            settings, policy, weights=share(policy, descriptor=descriptor), prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
        )
        self._line = Line(self._start, restarts=settings.restarts, meter=meter)

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
        return self._training.num_groups

    @property
    def pid(self) -> int:
        """Of the process in which vLLM runs."""
        return self._line.pid

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests, admitted in order.

        Raises:
            UsageError: a group has more completions than there are slots, or sequences would be longer than vLLM was started for.
        """
        check_requests(requests, self._decoding, max_tokens=self._start.max_model_len)
        self._training.submit(requests)

    def cancel(self, groups: Collection[int]) -> None:
        """Forget requests, queued or in flight."""
        self._training.cancel(groups)

    def step(self) -> list[Group]:
        """One token for every row; none, after half a second at most, while vLLM starts.

        Raises:
            ScalerlError: vLLM does not start, or failed, and why.
            LostRoleError: its process has died more often than it is started again.
        """
        self._training.admit()
        self._advance(Activity.GENERATE)
        return self._training.take_finished()

    def take_weights(self, version: int, tensors: Mapping[str, Tensor], *, between: Callable[[], None]) -> list[Group]:
        """Switch to the weights `tensors`; returns what finished on the way: what `drain` waits for, or a re-prefill ended."""
        while self._evaluation.num_unfinished:
            self._evaluation.admit()
            self._advance(Activity.EVALUATE)
            between()
        self._last_push = _met(self._training.in_flight())
        while self._kv == "drain" and self._training.num_open:
            self._advance(Activity.GENERATE)
            between()
        while not self._line.has_started():  # It reads its first weights where the new ones are written.
            between()
        self._policy.load_tensors(tensors)
        self._version = version
        self._line.load()
        if self._kv == "reprefill":
            self._reprefill(between)
        return self._training.take_finished()

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        """Sample `requests` with the weights in use, for which a push waits from now on.

        Draws come from a stream of their own, keyed by prompt and epoch: two evaluations with the same epochs have common random
        numbers, whatever the weights; two with other epochs have independent errors.
        """
        assert not self._evaluation.num_groups, "one evaluation at a time"
        check_requests(requests, self._decoding, max_tokens=self._start.max_model_len)
        self._evaluation.submit(requests)

    def step_evaluation(self) -> list[Group]:
        """One token for every row; the groups of the evaluation that finished."""
        self._evaluation.admit()
        self._advance(Activity.EVALUATE)
        return self._evaluation.take_finished()

    def evaluate(self, requests: Sequence[Request], *, between: Callable[[], None]) -> list[Group]:
        """All groups of `requests`, in their order; requests in flight go on meanwhile."""
        self.begin_evaluation(requests)
        finished: dict[int, Group] = {}
        while self._evaluation.num_groups:
            finished.update((group.id, group) for group in self.step_evaluation())
            between()
        return [finished[request.group] for request in requests]

    def score(self, probe: Sequence[tuple[TokenIds, TokenIds]]) -> NDArray[np.float32]:
        """The probe under the weights in use; booked as part of the push.

        Each token is asked for as the next one after those before it, so that its log-probability comes from the passes and the
        sampler that completions come from, temperature included; vLLM's scores of prompts leave that out.
        """
        asked = [
            _Asked(token_ids=(*context, *continuation[:place]), scored_id=token_id)
            for context, continuation in probe
            for place, token_id in enumerate(continuation)
        ]
        while unanswered := [one for one in asked if one.answer is None]:
            self._advance(Activity.PUSH, detail=_PROBE, asked=unanswered)
        answers = [one.answer for one in asked if one.answer is not None]
        if answers:
            self._book_probe(probe, asked=asked, answers=answers)
        return np.array([answer.log_prob for answer in answers], dtype=np.float32)

    def _advance(self, activity: Activity, *, detail: str = "", asked: Sequence[_Asked] = ()) -> None:
        """One step for all that is in flight, and for what is `asked`; its seconds are those of whoever wants it."""
        with self._meter.doing(activity, detail):
            sampled = self._line.step([*self._training.in_flight(), *self._evaluation.in_flight(), *asked])
            for traces in (self._training, self._evaluation):
                traces.take(sampled, version=self._version)
        for work, token in sampled:
            if isinstance(work, _Asked):
                work.answer = token

    def _reprefill(self, between: Callable[[], None]) -> None:
        """Have the keys of every completion computed anew. Each gets its next token on the way, and vLLM may take several steps."""
        stale = [trace for trace in self._training.in_flight() if trace.name]
        for trace in stale:
            trace.is_stale = True
        before = self._training.num_again, self._training.pairs_again
        self._line.forget_keys()
        while any(trace.is_stale for trace in stale):
            self._advance(Activity.REPREFILL)
            between()
        num_tokens, num_pairs = self._training.num_again - before[0], self._training.pairs_again - before[1]
        if num_tokens:  # What was expected knows nothing of the blocks that prompts share.
            self._last_push = replace(self._last_push, reprefill_tokens=num_tokens, reprefill_pairs=num_pairs)

    def _book_probe(self, probe: Sequence[tuple[TokenIds, TokenIds]], *, asked: Sequence[_Asked], answers: Sequence[Token]) -> None:
        """Book each sequence as if it were computed at once, and what was computed more as overhead."""
        flops = self._policy.flops
        once = np.array([len(context) + len(continuation) - 1 for context, continuation in probe], dtype=np.int64)
        useful = flops.forward(num_tokens=int(once.sum()), num_pairs=int(causal_pairs(once).sum()), num_logits=len(answers))
        ends = np.array([len(one.token_ids) for one in asked], dtype=np.int64)
        computed = np.array([answer.num_computed for answer in answers], dtype=np.int64)
        num_pairs = int(causal_pairs(ends, start=ends - computed).sum())
        done = flops.forward(num_tokens=int(computed.sum()), num_pairs=num_pairs, num_logits=len(answers))
        self._meter.count(Activity.PUSH, flops=useful, overhead_flops=max(0.0, done - useful), tokens=len(answers), detail=_PROBE)


def _met(traces: Sequence[Trace]) -> Push:
    """What a push meets: completions that have begun. Each counts its whole prompt, of which vLLM would share full blocks."""
    begun = [trace for trace in traces if trace.token_ids]
    lengths = np.array([trace.num_positions - 1 for trace in begun], dtype=np.int64)
    return Push(
        num_rows=len(begun),
        prompt_tokens=sum(len(trace.request.prompt.token_ids) for trace in begun),
        generated_tokens=sum(len(trace.token_ids) - 1 for trace in begun),
        reprefill_tokens=int(lengths.sum()),
        reprefill_pairs=int(causal_pairs(lengths).sum()),
    )
