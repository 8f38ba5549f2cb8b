"""The frozen reference policy of a KL term: the weights that training began with, a copy of their own in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from scalerl.accounting.flops import TrainingFlops
from scalerl.accounting.meter import Meter
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.trainers import Trainer
from scalerl.trainers._log_probs import log_probs
from scalerl.trainers._passes import Books, Passes
from scalerl.trainers._rows import Row

DETAIL = "reference"
"""What its passes are booked as."""


class Reference:
    """Says what the policy said before training."""

    def __init__(self, policy: Policy, *, temperature: float, trainer: Trainer, meter: Meter) -> None:
        self._policy = Policy(copy.deepcopy(policy.module).requires_grad_(requires_grad=False), policy.tokenizer, head=policy.head)
        self._temperature = temperature
        self._meter = meter
        books = Books(meter, Activity.TRAIN, TrainingFlops(policy.flops), DETAIL)
        self._passes = Passes.of(self._policy, books=books, trainer=trainer)

    @property
    def num_bytes(self) -> int:
        """Weights."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    @torch.no_grad()
    def told(self, rows: Sequence[Row], *, between: Callable[[], None]) -> list[Row]:
        """The rows with log pi_ref of their trainable tokens; calls `between` after each micro-batch."""
        known: dict[int, Row] = {}
        with self._meter.doing(Activity.TRAIN, DETAIL):
            for batch, states in self._passes.over(rows):
                chosen, _ = log_probs(self._policy, states, batch.targets, temperature=self._temperature)
                for row, values in zip(batch.rows, batch.split(chosen), strict=True):
                    known[id(row)] = replace(row, reference=row.over_own(values))
                between()
        return [known[id(row)] for row in rows]

    def tensors(self) -> dict[str, Tensor]:
        """Its weights: those of a checkpoint are not the ones that training began with."""
        return self._policy.tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave.

        Raises:
            DataError: they are those of another model.
        """
        self._policy.load_tensors(tensors)
