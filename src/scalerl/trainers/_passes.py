"""Forward passes over rows: every prompt once, and completions of like length together.

    for batch, states in passes.over(rows):
        loss = ...
        loss.backward()

Prompts that many completions go on from are read first, in a pass of their own (`_prompts.py`). Where that is not exact for
an architecture, or saves little, rows are read whole, which causal attention without a mask is faster at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from scalerl.accounting.flops import TrainingFlops
from scalerl.accounting.meter import Meter
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.trainers import Trainer
from scalerl.trainers._prompts import Body, Prompts, can_share
from scalerl.trainers._rows import MicroBatch, Row, Work, cut, pad

_LEAST_SAVING = 0.1
"""Share of tokens that are prompts read again from which on it pays to read them once: a mask costs attention about as much."""


@dataclass(frozen=True, slots=True)
class Books:
    """What passes are booked as."""

    meter: Meter
    activity: Activity
    flops: TrainingFlops
    detail: str = ""

    def book(self, work: Work) -> None:
        """Count a pass: its useful FLOPs, padding and recomputation as overhead, and the trainable tokens."""
        useful, padding = work.forward_flops(self.flops.useful)
        overhead = padding + sum(work.forward_flops(self.flops.recomputed))
        self.meter.count(self.activity, flops=useful, overhead_flops=overhead, tokens=work.num_logits, detail=self.detail)


@dataclass(frozen=True, slots=True)
class Passes:
    """A body that reads rows."""

    body: Body
    books: Books
    max_tokens: int
    """Unpadded tokens in memory at once, but for a row or a prompt that is longer by itself."""
    shares_prompts: bool
    pad_id: int
    device: torch.device

    @classmethod
    def of(cls, policy: Policy, *, books: Books, trainer: Trainer, body: Body | None = None) -> Self:
        """The passes of a policy, or of a `body` like its own, as `trainer` would have them."""
        return cls(
            policy.hidden if body is None else body,
            books,
            max_tokens=trainer.micro_batch_tokens,
            # What is computed a second time in the backward pass cannot fill a cache.
            shares_prompts=can_share(policy.config) and not trainer.activation_checkpointing,
            pad_id=policy.pad_id,
            device=policy.device,
        )

    def over(self, rows: Sequence[Row]) -> Iterator[tuple[MicroBatch, Tensor]]:
        """Micro-batches with the (M, H) states that predict their trainable tokens; every row is in one of them.

        Take the gradient of one before asking for the next: that of a prompt is added after its last completion.
        """
        if not self.shares_prompts or _saving(rows) < _LEAST_SAVING:
            for chunk in cut(rows, max_tokens=self.max_tokens, length=lambda row: row.num_inputs):
                batch = self._booked(pad(chunk, pad_id=self.pad_id, device=self.device))
                yield batch, read_whole(self.body, batch)
            return
        for members in self._shares(rows):
            prompts = Prompts(self.body, members, pad_id=self.pad_id, device=self.device)
            self.books.book(prompts.work)
            room = self.max_tokens - prompts.work.num_tokens
            for chunk in cut(members, max_tokens=room, length=lambda row: row.num_tokens):
                batch = self._booked(pad(chunk, pad_id=self.pad_id, device=self.device, after=prompts.width))
                yield batch, prompts.states(batch, places=prompts.places(chunk))
            prompts.backward()

    def _booked(self, batch: MicroBatch) -> MicroBatch:
        self.books.book(batch.work)
        return batch

    def _shares(self, rows: Sequence[Row]) -> Iterator[list[Row]]:
        """The rows of as many prompts as leave half of the room to completions."""
        by_prompt: dict[bytes, list[Row]] = {}
        for row in rows:
            by_prompt.setdefault(row.prompt.tobytes(), []).append(row)
        share: list[Row] = []
        room = self.max_tokens // 2
        for members in by_prompt.values():
            if share and members[0].num_prompt_tokens > room:
                yield share
                share, room = [], self.max_tokens // 2
            share += members
            room -= members[0].num_prompt_tokens
        yield share


def read_whole(body: Body, batch: MicroBatch) -> Tensor:
    """(M, H) states that predict the trainable tokens of rows that are read from their first token on."""
    return body(batch.input_ids, use_cache=False).flatten(0, 1).index_select(0, batch.predictors)


def _saving(rows: Sequence[Row]) -> float:
    """Share of the tokens of all rows that need not be read if every prompt is read once."""
    once = {row.prompt.tobytes(): row.num_prompt_tokens for row in rows}
    num_saved = sum(row.num_prompt_tokens for row in rows) - sum(once.values())
    return num_saved / max(1, sum(row.num_inputs for row in rows))
