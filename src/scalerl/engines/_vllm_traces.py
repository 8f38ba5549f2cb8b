"""Completions in flight in vLLM, token by token, and the groups that they make up.

    request --admit--> traces --take, token by token--> Group

vLLM only ever knows the rest of a trace: where a phrase is inserted, another piece goes on from there.

A draw is keyed by (seed, purpose, prompt, epoch, completion, position of the piece's first token): a token does not depend
on its neighbours. Booked tokens are the sampled ones; computing a position the first time is useful work, computing it again
is overhead, or re-prefill after new weights.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from scalerl.accounting.flops import causal_pairs
from scalerl.accounting.meter import Meter
from scalerl.core.errors import ScalerlError
from scalerl.core.random import stream_key, uniform
from scalerl.engines._flight import Decoding
from scalerl.engines._vllm_calls import Piece, Token
from scalerl.engines._vllm_line import Work
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.records.roles import Request
from scalerl.records.rollout import Completion, Group

_SEEDS = 2**53
"""As many as a uniform draw tells apart."""


@dataclass(slots=True, eq=False, kw_only=True)
class Trace(Work):
    """One completion as far as it has come."""

    request: Request
    index: int
    purpose: str
    key: tuple[int, int]
    """Of its draws."""
    limit: int
    """Tokens at which it ends, stopped or not."""
    interrupt_after: int | None
    booked: int
    """Positions of prompt and completion whose first computation is booked."""
    is_stale: bool = False
    """Whether its keys are being computed anew."""
    is_thinking: bool = True
    stopped: bool = False
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    trainable: list[bool] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def num_positions(self) -> int:
        """Tokens of the prompt and of the completion."""
        return len(self.request.prompt.token_ids) + len(self.token_ids)

    @property
    def is_done(self) -> bool:
        """Whether it has stopped or used up its budget."""
        return self.stopped or len(self.token_ids) >= self.limit

    def append(self, token_ids: Sequence[int], *, log_probs: Sequence[float], trainable: bool, version: int) -> None:
        """Sampled or inserted tokens."""
        self.token_ids += token_ids
        self.log_probs += log_probs
        self.trainable += [trainable] * len(token_ids)
        self.versions += [version] * len(token_ids)

    def piece(self, *, name: str, salt: str) -> Piece:
        """The rest of it."""
        draw = uniform(self.key, self.index, len(self.token_ids))
        token_ids = (*self.request.prompt.token_ids, *self.token_ids)
        return Piece(name, token_ids, max_tokens=self.limit - len(self.token_ids), seed=int(draw.item() * _SEEDS), salt=salt)

    def send_again(self) -> None:
        """Have the rest sent as another piece, whose keys are computed in any case."""
        Work.send_again(self)
        self.is_stale = False

    def completion(self, text: str) -> Completion:
        """What it has become."""
        return Completion(
            index=self.index,
            token_ids=np.array(self.token_ids, dtype=np.int32),
            log_probs=np.array(self.log_probs, dtype=np.float32),
            trainable=np.array(self.trainable, dtype=np.bool_),
            version_runs=tuple((version, len(list(run))) for version, run in groupby(self.versions)),
            finished=self.stopped,
            text=text,
        )


class Traces:
    """The groups of one purpose: training (`sample`, booked as generation) or evaluation (`evaluate`)."""

    def __init__(self, policy: Policy, decoding: Decoding, *, purpose: str, activity: Activity, meter: Meter) -> None:
        self._policy = policy
        self._decoding = decoding
        self._purpose = purpose
        self._activity = activity
        self._meter = meter
        self._stop_ids = policy.stop_ids
        self._queue: deque[Request] = deque()
        self._open: dict[int, list[Trace]] = {}
        self._finished: list[Group] = []
        self.num_again = 0
        """Tokens computed again for new weights so far; blocks that prompts share count once."""
        self.pairs_again = 0
        """(token, key) pairs of their attention."""

    @property
    def num_groups(self) -> int:
        """Groups that were submitted and not taken."""
        return len(self._queue) + len(self._open) + len(self._finished)

    @property
    def num_unfinished(self) -> int:
        """Groups that were submitted and are not done."""
        return len(self._queue) + len(self._open)

    @property
    def num_open(self) -> int:
        """Groups that were admitted and are not done."""
        return len(self._open)

    def in_flight(self) -> list[Trace]:
        """The traces that are not done, in the order of their admission."""
        return [trace for traces in self._open.values() for trace in traces if not trace.is_done]

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests."""
        self._queue.extend(requests)

    def admit(self) -> None:
        """Make traces of the first requests in the queue, as long as whole groups fit."""
        room = self._decoding.slots - len(self.in_flight())
        while self._queue and self._queue[0].num_completions <= room:
            request = self._queue.popleft()
            assert request.group not in self._open, "a group is in flight once"
            self._open[request.group] = self._traces(request)
            room -= request.num_completions

    def cancel(self, groups: Collection[int]) -> None:
        """Forget `groups`, unknown ones excepted."""
        self._queue = deque(request for request in self._queue if request.group not in groups)
        self._finished = [group for group in self._finished if group.id not in groups]
        self._open = {group: traces for group, traces in self._open.items() if group not in groups}

    def take(self, sampled: Sequence[tuple[Work, Token]], *, version: int) -> None:
        """Append those tokens of a step that are of this purpose."""
        own = [(trace, token) for trace, token in sampled if isinstance(trace, Trace) and trace.purpose == self._purpose]
        if not own:
            return
        self._book(own)
        for trace, token in own:
            self._append(trace, token, version=version)
        for group in [group for group, traces in self._open.items() if all(trace.is_done for trace in traces)]:
            self._finished.append(self._group(self._open.pop(group)))

    def take_finished(self) -> list[Group]:
        """The groups that have finished since the last call, in the order in which they did."""
        finished, self._finished = self._finished, []
        return finished

    def _key(self, purpose: str, request: Request) -> tuple[int, int]:
        return stream_key(self._decoding.seed, purpose, request.prompt.id, request.epoch)

    def _traces(self, request: Request) -> list[Trace]:
        insertion, num_prompt = self._decoding.insertion, len(request.prompt.token_ids)
        after: list[int] | list[None] = [None] * request.num_completions
        if insertion is not None:
            key = self._key(f"{self._purpose} interruption", request)
            after = insertion.after(uniform(key, np.arange(request.num_completions), 0)).tolist()
        return [
            Trace(
                request=request,
                index=index,
                purpose=self._purpose,
                key=self._key(self._purpose, request),
                limit=self._decoding.completion_tokens,
                interrupt_after=after[index],
                # The prompt is useful work once; where vLLM computes it for other completions of the group, that is overhead.
                booked=num_prompt if index else 0,
            )
            for index in range(request.num_completions)
        ]

    def _append(self, trace: Trace, token: Token, *, version: int) -> None:
        """Append a token, and the phrase where the trace's time is up."""
        if not math.isfinite(token.log_prob):
            raise ScalerlError(f"version {version} has logits that are not finite", where="engine", remedy="lower the learning rate")
        trace.append([token.id], log_probs=[token.log_prob], trainable=True, version=version)
        trace.is_stale = False
        trace.stopped = token.id in self._stop_ids
        insertion = self._decoding.insertion
        if insertion is None or not trace.is_thinking:
            return
        end = insertion.thinking_end.tolist()
        trace.is_thinking = not end or trace.token_ids[-len(end) :] != end
        if trace.is_thinking and not trace.stopped and len(trace.token_ids) == trace.interrupt_after:
            phrase = insertion.token_ids.tolist()
            trace.append(phrase, log_probs=[0.0] * len(phrase), trainable=False, version=version)
            trace.limit = min(trace.limit, len(trace.token_ids) + insertion.answer_tokens)
            trace.is_thinking = False
            trace.send_again()

    def _book(self, sampled: Sequence[tuple[Trace, Token]]) -> None:
        """Book what a step computed: positions up to the last one of each trace, some of them again."""
        traces = [trace for trace, _ in sampled]
        ends = np.array([trace.num_positions for trace in traces])
        starts = ends - [token.num_computed for _, token in sampled]
        news = np.clip([trace.booked for trace in traces], starts, ends)
        stale = np.array([trace.is_stale for trace in traces])
        self._meter.count(
            self._activity,
            tokens=len(traces),
            flops=self._forward(news, ends, num_logits=int(np.count_nonzero(news < ends))),
            overhead_flops=self._forward(starts[~stale], news[~stale], num_logits=int(np.count_nonzero(news == ends))),
        )
        if stale.any():
            num_again = int((news - starts)[stale].sum())
            self.num_again += num_again
            self.pairs_again += int(causal_pairs(news[stale], start=starts[stale]).sum())
            self._meter.count(Activity.REPREFILL, tokens=num_again, flops=self._forward(starts[stale], news[stale], num_logits=0))
        for trace in traces:
            trace.booked = trace.num_positions

    def _forward(self, starts: NDArray[np.int64], ends: NDArray[np.int64], *, num_logits: int) -> float:
        """FLOPs of the positions from `starts` to `ends`."""
        num_pairs = int(causal_pairs(ends, start=starts).sum())
        return self._policy.flops.forward(num_tokens=int((ends - starts).sum()), num_pairs=num_pairs, num_logits=num_logits)

    def _group(self, traces: Sequence[Trace]) -> Group:
        request = traces[0].request
        texts = self._policy.tokenizer.batch_decode([trace.token_ids for trace in traces], skip_special_tokens=True)
        completions = tuple(trace.completion(text) for trace, text in zip(traces, texts, strict=True))
        return Group(request.group, request.prompt, request.epoch, completions)
