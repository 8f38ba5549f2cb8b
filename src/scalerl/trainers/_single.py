"""The trainer on one device: micro-batches forward and backward, then one clipped step of AdamW.

    minimise  - sum_it  weight_it * J_it            weights: aggregations, over the whole batch;  J: losses

Weights and advantages are computed once per batch, before it is cut, so the gradient is that of the uncut batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from scalerl.accounting.meter import Meter
from scalerl.core.errors import DataError
from scalerl.models._policy import Policy
from scalerl.objective.advantages import Advantage
from scalerl.objective.aggregations import Aggregation
from scalerl.objective.losses import Loss
from scalerl.records.cost import Activity
from scalerl.records.rollout import Batch
from scalerl.trainers import AdamW
from scalerl.trainers._folders import written
from scalerl.trainers._log_probs import log_probs
from scalerl.trainers._metrics import TokenValues, finite, token_metrics
from scalerl.trainers._optimizer import MasterAdamW
from scalerl.trainers._rows import MicroBatch, Row, batch_rows, cut, pad

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer.json"


class SingleLearner:
    """Implements `Learner`. The policy stays in evaluation mode: a dropout that the generator does not have would be mismatch."""

    def __init__(
        self,
        policy: Policy,
        *,
        loss: Loss,
        advantage: Advantage,
        aggregation: Aggregation,
        optimizer: AdamW,
        micro_batch_tokens: int,
        temperature: float,
        meter: Meter,
    ) -> None:
        self._policy = policy
        self._loss = loss
        self._advantage = advantage
        self._aggregation = aggregation
        self._settings = optimizer
        self._micro_batch_tokens = micro_batch_tokens
        self._temperature = temperature
        self._meter = meter
        self._version = 0
        self._optimizer = MasterAdamW(
            policy.module.named_parameters(),
            betas=optimizer.betas,
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            clip_norm=optimizer.clip_norm,
        )

    @property
    def version(self) -> int:
        """Updates so far."""
        return self._version

    @property
    def learning_rate(self) -> float:
        """Of the next update."""
        warmup = max(1, self._settings.warmup_steps)
        return self._settings.learning_rate * min(1.0, (self._version + 1) / warmup)

    def train(self, batch: Batch, *, between: Callable[[], None]) -> dict[str, float | None]:
        """One optimizer step; `skipped` is 1 where loss or gradient was not finite, and nothing was updated for it."""
        with self._meter.doing(Activity.TRAIN):
            self._optimizer.discard()
            rows = batch_rows(batch, advantage=self._advantage, aggregation=self._aggregation)
            shares: list[Tensor] = []
            values: list[TokenValues] = []
            for chunk in cut(rows, max_tokens=self._micro_batch_tokens):
                share, known = self._backward(pad(chunk, pad_id=self._policy.pad_id, device=self._policy.device))
                shares.append(share)
                values.append(known)
                between()
            loss = float(sum(share.item() for share in shares))
            learning_rate, grad_norm = self.learning_rate, self._update(loss) if rows else 0.0
            return finite(
                {
                    "loss": loss,
                    "grad_norm": grad_norm,
                    "learning_rate": learning_rate,
                    **token_metrics(values),
                    "advantage_std": float(np.std([row.advantage for row in rows])) if rows else math.nan,
                    "num_tokens": sum(len(known.log_probs) for known in values),
                    "num_completions": len(rows),
                    "num_micro_batches": len(values),
                    "skipped": float(not math.isfinite(grad_norm)),
                }
            )

    def weights(self) -> Mapping[str, Tensor]:
        """The weights in use by name; views, not copies."""
        return self._policy.tensors()

    def score(self, probe: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> NDArray[np.float32]:
        """Log-probability in nats of every token of the second parts, one after the other; booked as part of a push."""
        if not probe:
            return np.zeros(0, np.float32)
        rows = [Row.of(context, continuation) for context, continuation in probe]
        batch = pad(rows, pad_id=self._policy.pad_id, device=self._policy.device)
        with self._meter.doing(Activity.PUSH, "probe"), torch.no_grad():
            known, _ = log_probs(self._policy, batch, temperature=self._temperature)
            useful, padding = batch.forward_flops(self._policy.flops)
            self._meter.count(Activity.PUSH, flops=useful, overhead_flops=padding, tokens=len(known), detail="probe")
            return known.cpu().numpy()

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimizer state and version into `folder`; they are on the disk when this returns."""
        with self._meter.doing(Activity.CHECKPOINT), written(folder):
            self._policy.save(folder)
            save_file(self._optimizer.tensors(), folder / OPTIMIZER_FILE)
            (folder / STATE_FILE).write_text(json.dumps({"version": self._version}))

    def restore(self, folder: Path) -> None:
        """Take up optimizer state and version from `folder`; the policy's weights are already those of it.

        Raises:
            DataError: `folder` holds no state of a trainer, or that of another model.
        """
        try:
            version = int(json.loads((folder / STATE_FILE).read_text())["version"])
            tensors = load_file(folder / OPTIMIZER_FILE)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"there is no trainer state to go on from ({error})", where=str(folder), remedy="resume from a checkpoint of a run"
            ) from None
        self._optimizer.load_tensors(tensors)
        self._version = version

    def _backward(self, batch: MicroBatch) -> tuple[Tensor, TokenValues]:
        """Add the micro-batch's gradient to what there is; returns its share of the loss, and what its tokens show."""
        chosen, entropy = log_probs(self._policy, batch, temperature=self._temperature)
        log_probs_NT = batch.spread(chosen)
        known = (batch.behaviour, batch.advantages, batch.mask)
        objective_NT = self._loss.objective(log_probs_NT, *known)
        loss = -(batch.weights * objective_NT).sum()
        loss.backward()
        self._optimizer.absorb()
        batch.book(self._meter, Activity.TRAIN, flops=self._policy.flops)
        clipped_NT = self._loss.clipped(log_probs_NT.detach(), *known)
        return loss.detach(), TokenValues(chosen.detach(), batch.behaviour[batch.mask], entropy, clipped_NT[batch.mask])

    def _update(self, loss: float) -> float:
        """Step on the summed gradient and count it; returns its norm, NaN where there is no finite loss to follow."""
        if not math.isfinite(loss):
            self._optimizer.discard()
            return math.nan
        grad_norm = self._optimizer.update(self.learning_rate)
        self._version += math.isfinite(grad_norm)
        return grad_norm
