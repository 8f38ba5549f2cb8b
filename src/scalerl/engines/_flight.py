"""Groups in flight: rows 0 .. n-1 of a cache, one per completion, each at its own length, one token further at every step.

    step      admit the groups that there is room for, one token for every row, retire what is done
    refresh   compute the cache of all rows anew, after the weights have changed

A step is one forward pass: the last token of every row that goes on, and the prompt of every group that begins, once for all
of its rows. A row that is done is replaced by the last one, so that rows stay side by side and no step computes an empty one;
now and then they are put in order of their length, so that attention reads little in vain. All bookkeeping is one structured
NumPy array; Python loops run over what starts or ends only.

A draw is keyed by (seed, purpose, prompt, epoch) and counted by (completion, position): a token does not depend on its
row, its neighbours or the order of admission, but for the rounding of matmuls of other shapes.

Booked tokens are the sampled ones (no prompts, nothing inserted), and those that `refresh` computes again: the prompt of a
group once, however many of its rows are in flight, and in every row what follows it, but for the last token, which the next
step feeds as ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from scalerl.accounting.meter import Meter
from scalerl.core.errors import ScalerlError
from scalerl.core.random import stream_key, uniform
from scalerl.engines import Engine
from scalerl.engines._blocks import Block, Ints, More, more_blocks, whole_blocks
from scalerl.engines._body import CachedBody
from scalerl.engines._insertion import Insertion
from scalerl.engines._sampling import sample
from scalerl.models._policy import Policy
from scalerl.objective.length_controls import LengthControl
from scalerl.records.cost import Activity
from scalerl.records.push import Push
from scalerl.records.roles import Request
from scalerl.records.rollout import Completion, Group, Prompt

Bools = NDArray[np.bool_]

_LOGITS_AT_ONCE = 2**22
"""So that a large vocabulary is never held for all rows at once."""
_DRAWN_AT_ONCE = 16
"""A call of the generator takes 100 us for any number of draws up to some hundreds."""
_READS_PER_MOVE = 4
"""Moving a row reads and writes it twice."""


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

    @classmethod
    def of(cls, engine: Engine, policy: Policy, *, control: LengthControl, completion_tokens: int, seed: int) -> Self:
        """What the settings of an engine and of a run make of it.

        Raises:
            UsageError: the phrase of an interruption leaves no room for an answer.
        """
        insertion = Insertion.of(control, policy, completion_tokens=completion_tokens)
        return cls(engine.temperature, completion_tokens, insertion, seed, engine.slots)


@dataclass(frozen=True, slots=True)
class Trace:
    """A completion as far as it has come."""

    group: int
    prompt: Prompt
    epoch: int
    completion: Completion
    is_done: bool

    @property
    def name(self) -> tuple[int, int]:
        """The group, and which of its completions this is."""
        return self.group, self.completion.index

    @property
    def num_cached(self) -> int:
        """Tokens that its cache holds: all but the last."""
        return len(self.prompt.token_ids) + self.completion.token_ids.size - 1


@dataclass(slots=True, eq=False)
class _Open:
    """A group of which not all completions are done."""

    request: Request
    done: dict[int, Completion] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return len(self.done) == self.request.num_completions

    def group(self) -> Group:
        request = self.request
        completions = tuple(self.done[index] for index in range(request.num_completions))
        return Group(id=request.group, prompt=request.prompt, epoch=request.epoch, completions=completions)

    def trace(self, completion: Completion, *, is_done: bool) -> Trace:
        return Trace(self.request.group, self.request.prompt, self.request.epoch, completion, is_done=is_done)


class Flight:
    """The rows of one purpose: training (`sample`, booked as generation) or evaluation (`evaluate`)."""

    def __init__(self, policy: Policy, decoding: Decoding, *, purpose: str, activity: Activity, meter: Meter) -> None:
        self._decoding = decoding
        self._purpose = purpose
        self._activity = activity
        self._meter = meter
        self._body = CachedBody(policy, num_rows=decoding.slots, meter=meter)
        self._is_stop = np.isin(np.arange(policy.config.vocab_size), list(policy.stop_ids))
        self._open: dict[int, _Open] = {}
        self._num_rows = 0
        self._read_in_vain = 0
        self._rows = np.zeros(decoding.slots, dtype=_row_type(decoding.completion_tokens))

    @property
    def num_groups(self) -> int:
        """Groups that are not finished."""
        return len(self._open)

    @torch.inference_mode()
    def step(self, queue: deque[Request], *, version: int) -> list[Group]:
        """Admit from `queue`, sample one token for every row, and return the groups that this finished, oldest first."""
        num_old = self._num_rows
        admitted = self._admit(queue)
        if not self._num_rows:
            return []
        self._append(*self._predict(num_old, admitted), version=version)
        finished = self._retire()
        self._put_in_order()
        return finished

    def freeze(self) -> None:
        """From now on decode with the weights in use, whatever is loaded into the policy."""
        self._body.freeze()

    @torch.inference_mode()
    def refresh(self) -> None:
        """Compute the keys of every row anew, all its tokens but the last; booked as re-prefill, not as generation."""
        if self._num_rows:
            blocks = self._reprefill()
            self._body.forward(blocks, activity=Activity.REPREFILL)
            self._meter.count(Activity.REPREFILL, tokens=sum(block.ids.size for block in blocks))

    def cancel(self, groups: Collection[int]) -> None:
        """Drop the rows of `groups`, unknown ones excepted."""
        for group in groups:
            self._open.pop(group, None)
        owners = self._rows["owner"][: self._num_rows]
        self._remove(np.array([owner.request.group not in self._open for owner in owners], dtype=np.bool_))

    def met(self) -> Push:
        """What a push meets now."""
        rows = self._rows[: self._num_rows]
        blocks = self._reprefill()
        return Push(
            num_rows=len(rows),
            prompt_tokens=int(rows["prompt_tokens"].sum()),
            generated_tokens=int((rows["num_tokens"] - 1).sum()),
            reprefill_tokens=sum(block.ids.size for block in blocks),
            reprefill_pairs=sum(block.num_pairs for block in blocks),
        )

    def traces(self) -> Iterator[Trace]:
        """The completions of all groups in flight as far as they have come, those that have ended included."""
        for owner in self._open.values():
            yield from (owner.trace(completion, is_done=True) for completion in owner.done.values())
        for row in self._rows[: self._num_rows]:
            yield row["owner"].trace(_completion(row), is_done=False)

    def _reprefill(self) -> list[Block]:
        """What computes every cache anew: each prompt once for its group, and what follows it in every row but the last token."""
        rows, index = self._rows[: self._num_rows], np.arange(self._num_rows)
        _, first, group_of_row = np.unique([owner.request.group for owner in rows["owner"]], return_index=True, return_inverse=True)
        prompts = [owner.request.prompt.token_ids for owner in rows["owner"][first]]
        wholes, _ = whole_blocks(prompts, rows=index, sequence_of_row=group_of_row)
        later = more_blocks(rows["ids"], rows=index, starts=rows["prompt_tokens"], num_new=rows["num_tokens"] - 1)
        return [*wholes, *(block for _, block in later)]

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
            new["drawn"] = -1
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

    def _predict(self, num_old: int, admitted: list[Request]) -> tuple[torch.Tensor, Ints]:
        """(S, H) hidden states that predict the next token, and (R,) which of them each row goes by.

        One pass: the last tokens of the first `num_old` rows, and the prompts of `admitted`, each once for its group.
        """
        blocks: list[Block] = []
        if num_old:
            rows = self._rows[:num_old]
            last = rows["ids"][np.arange(num_old), rows["num_tokens"] - 1]
            blocks.append(More(last[:, None], slice(0, num_old), rows["prompt_tokens"] + rows["num_tokens"] - 1))
        if not admitted:
            return self._body.forward(blocks, activity=self._activity), np.arange(num_old)
        group_of_row = np.repeat(np.arange(len(admitted)), [request.num_completions for request in admitted])
        prompts = [request.prompt.token_ids for request in admitted]
        wholes, last_of_prompt = whole_blocks(prompts, rows=np.arange(num_old, self._num_rows), sequence_of_row=group_of_row)
        hidden = self._body.forward([*blocks, *wholes], activity=self._activity)
        predictors = np.concatenate((np.arange(num_old), num_old + last_of_prompt))
        return hidden[torch.from_numpy(predictors).to(hidden.device)], np.concatenate((np.arange(num_old), num_old + group_of_row))

    def _append(self, hidden: torch.Tensor, predictor_of_row: Ints, *, version: int) -> None:
        """Sample a token for every row, and interrupt the completions whose time is up."""
        rows = self._rows[: self._num_rows]
        at = np.arange(len(rows)), rows["num_tokens"].copy()
        draws = _draws(rows)
        rows["ids"][at], rows["log_probs"][at] = self._sample(hidden, predictor_of_row, draws)
        if not np.isfinite(rows["log_probs"][at]).all():
            raise ScalerlError(f"version {version} has logits that are not finite", where="engine", remedy="lower the learning rate")
        rows["trainable"][at] = True
        rows["version"][at] = version
        rows["num_tokens"] += 1
        rows["stopped"] = self._is_stop[rows["ids"][at]]
        self._meter.count(self._activity, tokens=len(rows))
        if self._decoding.insertion is not None:
            rows["ended_thinking"] |= _end_with(rows, self._decoding.insertion.thinking_end)
            due = ~rows["stopped"] & ~rows["ended_thinking"] & (rows["num_tokens"] == rows["interrupt_after"])
            if due.any():
                self._interrupt(np.flatnonzero(due), self._decoding.insertion, version=version)

    def _sample(self, hidden: torch.Tensor, predictor_of_row: Ints, draws: NDArray[np.float64]) -> tuple[Ints, NDArray[np.float32]]:
        """(R,) tokens and their log-probs; never more logits at once than `_LOGITS_AT_ONCE`."""
        ids, log_probs = [], []
        at_once = max(1, _LOGITS_AT_ONCE // len(self._is_stop))
        for first in range(0, len(hidden), at_once):
            logits = self._body.logits(hidden[first : first + at_once], activity=self._activity)
            begin, end = np.searchsorted(predictor_of_row, (first, first + at_once))
            if end - begin > len(logits):  # rows of one group begin with the same logits
                logits = logits[torch.from_numpy(predictor_of_row[begin:end] - first).to(hidden.device)]
            tokens, scores = sample(logits, torch.from_numpy(draws[begin:end]).to(hidden.device), temperature=self._decoding.temperature)
            ids.append(tokens.cpu().numpy())
            log_probs.append(scores.cpu().numpy())
        return np.concatenate(ids), np.concatenate(log_probs)

    def _interrupt(self, due: Ints, insertion: Insertion, *, version: int) -> None:
        """Append the phrase to the rows `due`; the keys of all but its last token are computed here, as for a sampled token."""
        phrase, rows = insertion.token_ids, self._rows[due]
        first = rows["num_tokens"]  # a copy: `due` lists rows
        last = rows["ids"][np.arange(len(due)), first - 1]
        fed = np.concatenate((last[:, None], np.broadcast_to(phrase[:-1], (len(due), len(phrase) - 1))), axis=1)
        self._body.forward([More(fed, due, rows["prompt_tokens"] + first - 1)], activity=self._activity)
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
            text = self._body.policy.decode(row["ids"][: row["num_tokens"]].tolist())
            row["owner"].done[int(row["completion"])] = _completion(row, text=text)
        self._remove(done)
        complete = [owner for owner in self._open.values() if owner.is_complete]
        for owner in complete:
            del self._open[owner.request.group]
        return [owner.group() for owner in complete]

    def _remove(self, gone: Bools) -> None:
        """Take out the rows marked in (n,) `gone`: the last rows that stay move to their places."""
        num_left = len(gone) - int(np.count_nonzero(gone))
        self._move(source=num_left + np.flatnonzero(~gone[num_left:]), target=np.flatnonzero(gone[:num_left]))
        self._rows["owner"][num_left : len(gone)] = None
        self._num_rows = num_left

    def _move(self, *, source: Ints, target: Ints) -> None:
        """Let the rows `source` take the places `target`."""
        if len(source):
            moved = self._rows[source]
            self._rows[target] = moved
            self._body.move(source=source, target=target, length=int(_num_cached(moved).max()))

    def _put_in_order(self) -> None:
        """Put long rows first, as soon as what their disorder makes attention read in vain has cost as much as moving them will."""
        lengths = _num_cached(self._rows[: self._num_rows])
        self._read_in_vain += int((np.maximum.accumulate(lengths[::-1])[::-1] - lengths).sum())
        if self._read_in_vain > _READS_PER_MOVE * lengths.sum():
            self._read_in_vain = 0
            order = np.argsort(-lengths, kind="stable")
            target = np.flatnonzero(order != np.arange(len(order)))
            self._move(source=order[target], target=target)


def _row_type(completion_tokens: int) -> np.dtype[Any]:
    """One completion in flight. Its cache holds all tokens but the last, which is fed at the next step."""
    return np.dtype(
        [
            ("owner", object),
            ("completion", np.int64),
            ("key", np.uint64, 2),
            ("draws", np.float64, _DRAWN_AT_ONCE),
            ("drawn", np.int64),  # which stretch of positions the draws are for
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


def _num_cached(rows: NDArray[Any]) -> Ints:
    """(N,) tokens whose keys the cache of each row holds."""
    lengths: Ints = rows["prompt_tokens"] + rows["num_tokens"] - 1
    return lengths


def _draws(rows: NDArray[Any]) -> NDArray[np.float64]:
    """(N,) uniform numbers for the next token of N `rows`, drawn for a stretch of positions at once."""
    stretch, place = np.divmod(rows["num_tokens"], _DRAWN_AT_ONCE)
    due = np.flatnonzero(rows["drawn"] != stretch)
    if len(due):
        new = rows[due]
        positions = stretch[due, None] * _DRAWN_AT_ONCE + np.arange(_DRAWN_AT_ONCE)
        rows["draws"][due] = uniform((new["key"][:, :1], new["key"][:, 1:]), new["completion"][:, None], positions)
        rows["drawn"][due] = stretch[due]
    draws: NDArray[np.float64] = rows["draws"][np.arange(len(rows)), place]
    return draws


def _end_with(rows: NDArray[Any], token_ids: Ints) -> Bools:
    """(N,) which of N `rows` have the (n,) `token_ids` as their latest tokens; none for n = 0."""
    if not len(token_ids):
        return np.zeros(len(rows), dtype=np.bool_)
    places = rows["num_tokens"][:, None] - len(token_ids) + np.arange(len(token_ids))
    latest = rows["ids"][np.arange(len(rows))[:, None], places.clip(min=0)]
    is_end: Bools = (places >= 0).all(axis=1) & (latest == token_ids).all(axis=1)
    return is_end


def _completion(row: np.void, *, text: str = "") -> Completion:
    """What a row has become."""
    num = int(row["num_tokens"])
    return Completion(
        index=int(row["completion"]),
        token_ids=row["ids"][:num].astype(np.int32),
        log_probs=row["log_probs"][:num].copy(),
        trainable=row["trainable"][:num].copy(),
        version_runs=_runs(row["version"][:num]),
        finished=bool(row["stopped"]),
        text=text,
    )


def _runs(versions: Ints) -> tuple[tuple[int, int], ...]:
    """(version, number of tokens) in order; versions never fall, so most often the two ends tell all."""
    if versions[0] == versions[-1]:
        return ((int(versions[0]), len(versions)),)
    values, counts = np.unique(versions, return_counts=True)
    return tuple(zip(values.tolist(), counts.tolist(), strict=True))
