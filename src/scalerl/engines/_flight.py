"""Groups in flight: rows 0 .. n-1 of a cache, one per completion, each at its own length, one token further at every step.

    step      admit the groups that there is room for, one token for every row, retire what is done
    refresh   compute the cache of all rows anew, after the weights have changed

A row that is done is replaced by the last one, so that rows stay side by side and no step computes an empty one. All
bookkeeping is one structured NumPy array; Python loops run over what starts or ends only.

A draw is keyed by (seed, purpose, prompt, epoch) and counted by (completion, position): a token does not depend on its
row, its neighbours or the order of admission, but for the rounding of matmuls of other shapes.

Booked tokens are the sampled ones (no prompts, nothing inserted), and those computed again by `refresh`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scalerl.accounting.meter import Meter
from scalerl.core.errors import ScalerlError
from scalerl.core.random import stream_key, uniform
from scalerl.engines._body import CachedBody, Ints
from scalerl.engines._insertion import Insertion
from scalerl.engines._sampling import sample
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.records.roles import Request
from scalerl.records.rollout import Completion, Group

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decoding:
    """What all completions of a run have in common."""

    temperature: float
    completion_tokens: int
    """Largest completion, inserted tokens included."""
    insertion: Insertion | None
    seed: int
    slots: int
    """Rows decoded at once."""


@dataclass(slots=True, eq=False)
class _Open:
    """A group of which not all completions are done."""

    request: Request
    done: dict[int, Completion] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return len(self.done) == self.request.num_completions


class Flight:
    """The rows of one purpose: training (`sample`, booked as generation) or evaluation (`evaluate`)."""

    def __init__(self, policy: Policy, decoding: Decoding, *, purpose: str, activity: Activity, meter: Meter) -> None:
        self._decoding = decoding
        self._purpose = purpose
        self._activity = activity
        self._meter = meter
        self._body = CachedBody(policy, num_rows=decoding.slots, meter=meter)
        self._tokenizer = policy.tokenizer
        self._stop_ids = np.array(sorted(policy.stop_ids), dtype=np.int64)
        self._open: dict[int, _Open] = {}
        self._num_rows = 0
        self._rows = np.zeros(decoding.slots, dtype=_row_type(decoding.completion_tokens))

    @property
    def num_groups(self) -> int:
        """Groups that are not finished."""
        return len(self._open)

    @torch.no_grad()
    def step(self, queue: deque[Request], *, version: int) -> list[Group]:
        """Admit from `queue`, sample one token for every row, and return the groups that this finished, oldest first."""
        num_old = self._num_rows
        admitted = self._admit(queue)
        logits = []
        if num_old:
            logits.append(self._decode(num_old))
        if admitted:
            logits.append(self._prefill(admitted, first_row=num_old))
        if not logits:
            return []
        self._append(torch.cat(logits), version=version)
        return self._retire()

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute the keys of every row anew, all its tokens but the last; booked as re-prefill, not as generation."""
        rows = self._rows[: self._num_rows]
        if not len(rows):
            return
        sequences = [
            np.concatenate((row["owner"].request.prompt.token_ids, row["ids"][: row["num_tokens"] - 1])).astype(np.int64) for row in rows
        ]
        everyone = np.arange(len(rows))
        self._body.whole(sequences, rows=everyone, sequence_of_row=everyone, activity=Activity.REPREFILL)
        self._meter.count(Activity.REPREFILL, tokens=sum(map(len, sequences)))

    def cancel(self, groups: Collection[int]) -> None:
        """Drop the rows of `groups`, unknown ones excepted."""
        for group in groups:
            self._open.pop(group, None)
        owners = self._rows["owner"][: self._num_rows]
        self._remove(np.array([owner.request.group not in self._open for owner in owners], dtype=np.bool_))

    def _admit(self, queue: deque[Request]) -> list[Request]:
        """Give rows to the first requests of `queue`, in order, as long as whole groups fit."""
        admitted = []
        while queue and self._num_rows + queue[0].num_completions <= self._decoding.slots:
            request = queue.popleft()
            assert request.group not in self._open, "a group is in flight once"
            self._open[request.group] = owner = _Open(request)
            new = self._rows[self._num_rows : self._num_rows + request.num_completions]
            completions = np.arange(request.num_completions)
            new["owner"] = owner
            new["completion"] = completions
            new["key"] = self._key(self._purpose, request)
            new["prompt_tokens"] = len(request.prompt.token_ids)
            new["num_tokens"] = 0
            new["ended_thinking"] = False
            new["limit"] = self._decoding.completion_tokens
            if self._decoding.insertion is not None:
                draws = uniform(self._key(f"{self._purpose} interruption", request), completions, 0)
                new["interrupt_after"] = self._decoding.insertion.after(draws)
            self._num_rows += request.num_completions
            admitted.append(request)
        return admitted

    def _key(self, purpose: str, request: Request) -> tuple[int, int]:
        return stream_key(self._decoding.seed, purpose, request.prompt.id, request.epoch)

    def _prefill(self, requests: list[Request], *, first_row: int) -> torch.Tensor:
        """(R, V) logits for the first token of every row of `requests`: each prompt is computed once."""
        prompts = [request.prompt.token_ids for request in requests]
        owner = np.repeat(np.arange(len(requests)), [request.num_completions for request in requests])
        rows = first_row + np.arange(len(owner))
        hidden = self._body.whole(prompts, rows=rows, sequence_of_row=owner, activity=self._activity)
        return self._body.logits(hidden, activity=self._activity)[torch.from_numpy(owner).to(hidden.device)]

    def _decode(self, num_rows: int) -> torch.Tensor:
        """(R, V) logits after the last token of the first `num_rows` rows."""
        rows = self._rows[:num_rows]
        last = rows["ids"][np.arange(num_rows), rows["num_tokens"] - 1]
        starts = rows["prompt_tokens"] + rows["num_tokens"] - 1
        hidden = self._body.extend(slice(0, num_rows), last[:, None], starts=starts, num_new=np.ones_like(starts), activity=self._activity)
        return self._body.logits(hidden[:, 0], activity=self._activity)

    def _append(self, logits: torch.Tensor, *, version: int) -> None:
        """Sample a token for every row, and interrupt the completions whose time is up."""
        rows = self._rows[: self._num_rows]
        at = np.arange(len(rows)), rows["num_tokens"].copy()
        draws = uniform((rows["key"][:, 0], rows["key"][:, 1]), rows["completion"], rows["num_tokens"])
        ids, log_probs = sample(logits, torch.from_numpy(draws).to(logits.device), temperature=self._decoding.temperature)
        rows["ids"][at] = ids.cpu().numpy()
        rows["log_probs"][at] = log_probs.cpu().numpy()
        if not np.isfinite(rows["log_probs"][at]).all():
            raise ScalerlError(f"version {version} has logits that are not finite", where="engine", remedy="lower the learning rate")
        rows["trainable"][at] = True
        rows["version"][at] = version
        rows["num_tokens"] += 1
        rows["stopped"] = np.isin(rows["ids"][at], self._stop_ids)
        self._meter.count(self._activity, tokens=len(rows))
        if self._decoding.insertion is not None:
            rows["ended_thinking"] |= _end_with(rows, self._decoding.insertion.thinking_end)
            due = ~rows["stopped"] & ~rows["ended_thinking"] & (rows["num_tokens"] == rows["interrupt_after"])
            if due.any():
                self._interrupt(np.flatnonzero(due), self._decoding.insertion, version=version)

    def _interrupt(self, due: Ints, insertion: Insertion, *, version: int) -> None:
        """Append the phrase to the rows `due`; the keys of all but its last token are computed here, as for a sampled token."""
        phrase, rows = insertion.token_ids, self._rows[due]
        first = rows["num_tokens"]  # a copy: `due` lists rows
        starts = rows["prompt_tokens"] + first - 1
        last = rows["ids"][np.arange(len(due)), first - 1]
        fed = np.concatenate((last[:, None], np.broadcast_to(phrase[:-1], (len(due), len(phrase) - 1))), axis=1)
        self._body.extend(due, fed, starts=starts, num_new=np.full_like(starts, len(phrase)), activity=self._activity)
        places = due[:, None], first[:, None] + np.arange(len(phrase))
        self._rows["ids"][places] = phrase
        self._rows["log_probs"][places] = 0.0
        self._rows["trainable"][places] = False
        self._rows["version"][places] = version
        self._rows["num_tokens"][due] += len(phrase)
        self._rows["limit"][due] = np.minimum(rows["limit"], first + len(phrase) + insertion.answer_tokens)

    def _retire(self) -> list[Group]:
        """Take out the rows that have stopped or used up their budget; return the groups that are complete now, oldest first."""
        rows = self._rows[: self._num_rows]
        done = rows["stopped"] | (rows["num_tokens"] >= rows["limit"])
        if not done.any():
            return []
        for row in rows[done]:
            row["owner"].done[int(row["completion"])] = _completion(row)
        self._remove(done)
        complete = [owner for owner in self._open.values() if owner.is_complete]
        for owner in complete:
            del self._open[owner.request.group]
        return [self._group(owner) for owner in complete]

    def _remove(self, gone: Bools) -> None:
        """Take out the rows marked in (n,) `gone`: the last rows that stay move to their places."""
        num_left = len(gone) - int(np.count_nonzero(gone))
        target = np.flatnonzero(gone[:num_left])
        source = num_left + np.flatnonzero(~gone[num_left:])
        if len(source):
            moved = self._rows[source]
            self._rows[target] = moved
            length = int((moved["prompt_tokens"] + moved["num_tokens"] - 1).max())
            self._body.move(source=source, target=target, length=length)
        self._rows["owner"][num_left : len(gone)] = None
        self._num_rows = num_left

    def _group(self, owner: _Open) -> Group:
        """The finished group, with its completions as text."""
        request = owner.request
        completions = [owner.done[index] for index in range(request.num_completions)]
        texts = self._tokenizer.batch_decode([completion.token_ids.tolist() for completion in completions], skip_special_tokens=True)
        return Group(
            id=request.group,
            prompt=request.prompt,
            epoch=request.epoch,
            completions=tuple(replace(completion, text=text) for completion, text in zip(completions, texts, strict=True)),
        )


def _row_type(completion_tokens: int) -> np.dtype[Any]:
    """One completion in flight. Its cache holds all tokens but the last, which is fed at the next step."""
    return np.dtype(
        [
            ("owner", object),
            ("completion", np.int64),
            ("key", np.uint64, 2),
            ("prompt_tokens", np.int64),
            ("num_tokens", np.int64),
            ("limit", np.int64),  # tokens at which it ends, stopped or not
            ("interrupt_after", np.int64),
            ("ended_thinking", np.bool_),  # by itself, so that it is not interrupted
            ("stopped", np.bool_),
            ("ids", np.int64, completion_tokens),
            ("log_probs", np.float32, completion_tokens),
            ("trainable", np.bool_, completion_tokens),
            ("version", np.int64, completion_tokens),
        ]
    )


def _end_with(rows: NDArray[Any], token_ids: Ints) -> Bools:
    """(N,) which of N `rows` have the (n,) `token_ids` as their latest tokens; none for n = 0."""
    if not len(token_ids):
        return np.zeros(len(rows), dtype=np.bool_)
    places = rows["num_tokens"][:, None] - len(token_ids) + np.arange(len(token_ids))
    latest = rows["ids"][np.arange(len(rows))[:, None], places.clip(min=0)]
    is_end: Bools = (places >= 0).all(axis=1) & (latest == token_ids).all(axis=1)
    return is_end


def _completion(row: np.void) -> Completion:
    """What a row has become; its text comes when the group is complete."""
    num = int(row["num_tokens"])
    return Completion(
        index=int(row["completion"]),
        token_ids=row["ids"][:num].astype(np.int32),
        log_probs=row["log_probs"][:num].copy(),
        trainable=row["trainable"][:num].copy(),
        version_runs=_runs(row["version"][:num]),
        finished=bool(row["stopped"]),
    )


def _runs(versions: Ints) -> tuple[tuple[int, int], ...]:
    """(version, number of tokens) in order; versions never fall, so most often the two ends tell all."""
    if versions[0] == versions[-1]:
        return ((int(versions[0]), len(versions)),)
    values, counts = np.unique(versions, return_counts=True)
    return tuple(zip(values.tolist(), counts.tolist(), strict=True))
