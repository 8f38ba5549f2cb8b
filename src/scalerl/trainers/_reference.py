"""The frozen reference policy of a KL term: the weights that training began with, a copy of their own in memory."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from scalerl.accounting.meter import Meter
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.trainers._log_probs import log_probs
from scalerl.trainers._rows import MicroBatch

DETAIL = "reference"
"""What its passes are booked as."""


class Reference:
    """Says what the policy said before training."""

    def __init__(self, policy: Policy, *, temperature: float, meter: Meter) -> None:
        self._policy = Policy(copy.deepcopy(policy.module).requires_grad_(requires_grad=False), policy.tokenizer, head=policy.head)
        self._temperature = temperature
        self._meter = meter

    @property
    def num_bytes(self) -> int:
        """Weights."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def log_probs(self, batch: MicroBatch) -> Tensor:
        """(N, T) log pi_ref of the trainable tokens in nats, 0 elsewhere."""
        with self._meter.doing(Activity.TRAIN, DETAIL), torch.no_grad():
            chosen, _ = log_probs(self._policy, batch, temperature=self._temperature)
            batch.book_forward(self._meter, Activity.TRAIN, flops=self._policy.flops, detail=DETAIL)
            return batch.spread(chosen)

    def tensors(self) -> dict[str, Tensor]:
        """Its weights: those of a checkpoint are not the ones that training began with."""
        return self._policy.tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave.

        Raises:
            DataError: they are those of another model.
        """
        self._policy.load_tensors(tensors)
