"""The trainer on one device: micro-batches forward and backward, then one clipped step of AdamW.

    minimise  - sum_it  weight_it * (J_it + terms_it)        weights: aggregations, over the whole batch;  J: losses

Weights and advantages are computed once per batch, before it is cut, so the gradient is that of the uncut batch. A critic
values first: its values are the baseline. Under torch.distributed every rank is given the same batch and takes its rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from scalerl.accounting.flops import TrainingFlops
from scalerl.accounting.meter import Meter
from scalerl.core.errors import DataError
from scalerl.models._memory import check_room
from scalerl.models._policy import BYTES_PER_TRAINED_PARAMETER, FP32_BYTES, Policy, recompute_activations
from scalerl.objective import Objective
from scalerl.objective.advantages.critic import Critic
from scalerl.records.cost import Activity
from scalerl.records.rollout import Batch
from scalerl.trainers import Trainer
from scalerl.trainers._critic import CriticLearner
from scalerl.trainers._folders import written
from scalerl.trainers._log_probs import log_probs
from scalerl.trainers._metrics import TokenValues, finite, token_metrics
from scalerl.trainers._noise import Gradients, measured
from scalerl.trainers._optimizer import MasterAdamW
from scalerl.trainers._passes import Books, Passes, read_whole
from scalerl.trainers._ranks import Ranks
from scalerl.trainers._reference import Reference
from scalerl.trainers._rows import MicroBatch, Row, batch_rows, pad

STATE_FILE = "trainer.json"


class Part(Protocol):
    """What a checkpoint keeps beside the model: `NAME.safetensors`."""

    def tensors(self) -> Mapping[str, Tensor]:
        """Its state."""
        ...

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take it up again."""
        ...


@dataclass(slots=True)
class _Step:
    """What the micro-batches of one step showed."""

    between: Callable[[], None]
    """Called after each of them."""
    losses: list[Tensor] = field(default_factory=list)
    values: list[TokenValues] = field(default_factory=list)


class SingleLearner:
    """Implements `Learner`. The policy stays in evaluation mode: a dropout that the generator does not have would be mismatch."""

    def __init__(self, policy: Policy, trainer: Trainer, *, objective: Objective, temperature: float, meter: Meter) -> None:
        self._policy = policy
        self._trainer = trainer
        self._objective = objective
        self._temperature = temperature
        self._meter = meter
        self._version = 0
        self._ranks = Ranks.here()
        recomputes = trainer.activation_checkpointing
        self._check_room()
        # Copies of the policy come before what changes it.
        self._reference = self._made_reference()
        self._critic = self._made_critic()
        if recomputes:
            recompute_activations(policy.module)
        self._forward_flops, flops = policy.flops, TrainingFlops.of(policy.flops, recomputes=recomputes)
        self._adapters = None
        if trainer.lora is not None:
            # Here, because peft is asked for by those alone who use it.
            from scalerl.trainers._lora import Adapters

            self._adapters = Adapters(policy, trainer.lora)
            self._forward_flops, flops = self._adapters.forward_flops, self._adapters.training_flops(recomputes=recomputes)
        self._passes = Passes.of(policy, books=Books(meter, Activity.TRAIN, flops), trainer=trainer)
        self._optimizer = MasterAdamW.of(policy.module.named_parameters(), trainer.optimizer)

    @property
    def version(self) -> int:
        """Updates so far."""
        return self._version

    @property
    def learning_rate(self) -> float:
        """Of the next update."""
        settings = self._trainer.optimizer
        return settings.learning_rate * min(1.0, (self._version + 1) / max(1, settings.warmup_steps))

    def train(self, batch: Batch, *, between: Callable[[], None]) -> dict[str, float | None]:
        """One optimizer step; `skipped` is 1 where loss or gradient was not finite, and nothing was updated for it."""
        with self._meter.doing(Activity.TRAIN):
            self._optimizer.discard()
            version, learning_rate, step = self._version, self.learning_rate, _Step(between)
            everyone = batch_rows(batch, objective=self._objective)
            rows, of_critic = self._valued(everyone, between=between)
            if self._reference is not None:
                rows = self._reference.told(rows, between=between)
            of_noise = self._accumulate_measured(rows, step) if self._measures_noise() else self._accumulate(rows, step)
            loss = sum(self._ranks.gathered([float(sum(share.item() for share in step.losses))]))
            grad_norm = self._update(loss) if everyone else 0.0
            if self._critic is not None and everyone and math.isfinite(grad_norm):
                of_critic |= self._critic.learn(learning_rate, between=between)
            values = self._ranks.gathered(step.values)
            advantages = self._ranks.gathered([row.advantages[row.trainable] for row in rows])
            return finite(
                {
                    "loss": loss,
                    "grad_norm": grad_norm,
                    "learning_rate": learning_rate,
                    **token_metrics(values, version=version),
                    **of_noise,
                    **of_critic,
                    **self._memory(),
                    "advantage_std": _spread(advantages),
                    "num_tokens": sum(len(known.log_probs) for known in values),
                    "num_completions": len(everyone),
                    "num_micro_batches": len(values),
                    "skipped": float(not math.isfinite(grad_norm)),
                }
            )

    def weights(self) -> Mapping[str, Tensor]:
        """The weights in use by name, adapters merged; views, not copies, where there are none."""
        if self._adapters is None:
            return self._policy.tensors()
        self._meter.count(Activity.PUSH, flops=self._adapters.merge_flops, detail="merging")
        return self._adapters.merged()

    def score(self, probe: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> NDArray[np.float32]:
        """Log-probability in nats of every token of the second parts, one after the other; booked as part of a push."""
        if not probe:
            return np.zeros(0, np.float32)
        rows = [Row.of(context, continuation) for context, continuation in probe]
        batch = pad(rows, pad_id=self._policy.pad_id, device=self._policy.device)
        with self._meter.doing(Activity.PUSH, "probe"), torch.no_grad():
            states = read_whole(self._policy.hidden, batch)
            known, _ = log_probs(self._policy, states, batch.targets, temperature=self._temperature)
            Books(self._meter, Activity.PUSH, TrainingFlops(self._forward_flops), "probe").book(batch.work)
            return known.float().cpu().numpy()

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, every part and the version into `folder`; they are on the disk when this returns."""
        with self._meter.doing(Activity.CHECKPOINT), written(folder):
            self._policy.save(folder, tensors=None if self._adapters is None else self._adapters.merged())
            for name, part in self._parts().items():
                save_file({key: tensor.contiguous() for key, tensor in part.tensors().items()}, folder / f"{name}.safetensors")
            (folder / STATE_FILE).write_text(json.dumps({"version": self._version}))

    def restore(self, folder: Path) -> None:
        """Take up every part and the version from `folder`; the policy's weights are already those of it.

        Raises:
            DataError: `folder` holds no state of a trainer, or that of another model or recipe.
        """
        try:
            version = int(json.loads((folder / STATE_FILE).read_text())["version"])
            for name, part in self._parts().items():
                part.load_tensors(load_file(folder / f"{name}.safetensors"))
        except (OSError, SafetensorError, RuntimeError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"there is no trainer state to go on from ({error})", where=str(folder), remedy="resume from a checkpoint of a run"
            ) from None
        self._version = version

    def _parts(self) -> dict[str, Part]:
        """Everything that the next step depends on, but for the model and the version."""
        parts = {"optimizer": self._optimizer, "critic": self._critic, "reference": self._reference, "adapters": self._adapters}
        return {name: part for name, part in parts.items() if part is not None}

    def _memory(self) -> dict[str, float]:
        """GiB of weights, gradients and optimizer states that stay between steps, and those of the critic and the reference among them."""
        copies = {"critic": self._critic, "reference": self._reference}
        of_copies = {f"memory_{name}_gib": copy.num_bytes / 2**30 for name, copy in copies.items() if copy is not None}
        own = sum(tensor.nbytes for tensor in self._policy.tensors().values()) + self._optimizer.num_bytes
        return {"memory_gib": own / 2**30 + sum(of_copies.values()), **of_copies}

    def _made_reference(self) -> Reference | None:
        if not any(term.needs_reference for term in self._objective.terms):
            return None
        return Reference(self._policy, temperature=self._temperature, trainer=self._trainer, meter=self._meter)

    def _made_critic(self) -> CriticLearner | None:
        if not isinstance(self._objective.advantage, Critic):
            return None
        return CriticLearner(self._policy, self._objective.advantage, trainer=self._trainer, meter=self._meter, ranks=self._ranks)

    def _check_room(self) -> None:
        """Refuse what does not fit beside the weights: gradients and moments of what is trained, a critic, a reference."""
        parts = {"training": BYTES_PER_TRAINED_PARAMETER - FP32_BYTES if self._trainer.lora is None else 0}
        if isinstance(self._objective.advantage, Critic):
            parts["a critic"] = BYTES_PER_TRAINED_PARAMETER
        if any(term.needs_reference for term in self._objective.terms):
            parts["the reference of a KL term"] = FP32_BYTES
        num_parameters = sum(tensor.numel() for tensor in self._policy.tensors().values())
        check_room(
            num_parameters * sum(parts.values()),
            what=" and ".join(name for name, size in parts.items() if size) or "training",
            where="trainer",
            remedy="do without some of it, or choose a smaller model or a larger machine",
        )

    def _valued(self, everyone: Sequence[Row], *, between: Callable[[], None]) -> tuple[list[Row], dict[str, float]]:
        """This rank's rows with their advantages, and what a critic measured; it has not learnt from them yet."""
        rows = self._ranks.share(everyone)
        if self._critic is None or not everyone:
            return rows, {}
        num_tokens = sum(int(row.trainable.sum()) for row in everyone)
        return self._critic.value(rows, num_tokens=num_tokens, between=between)

    def _measures_noise(self) -> bool:
        every = self._trainer.noise_every_steps
        return every is not None and self._ranks.number == 1 and self._version % every == 0

    def _accumulate(self, rows: Sequence[Row], step: _Step) -> dict[str, float]:
        """Add the gradient of `rows` to what there is."""
        for batch, states in self._passes.over(rows):
            self._backward(batch, states, step)
            step.between()
        return {}

    def _accumulate_measured(self, rows: Sequence[Row], step: _Step) -> dict[str, float]:
        """The same gradient in pieces that show its noise."""

        def gradients(some: Sequence[Row]) -> Gradients:
            self._accumulate(some, step)
            return self._optimizer.take_gradients()

        total, metrics = measured(rows, gradients=gradients)
        self._optimizer.give_gradients(total)
        return metrics

    def _backward(self, batch: MicroBatch, states: Tensor, step: _Step) -> None:
        """Add the micro-batch's gradient to what there is, and tell its share of the loss and what its tokens show."""
        terms = self._objective.terms
        keeps_entropy = any(term.needs_entropy for term in terms)
        chosen, entropy = log_probs(self._policy, states, batch.targets, temperature=self._temperature, keeps_entropy=keeps_entropy)
        log_probs_NT, entropy_NT = batch.spread(chosen), batch.spread(entropy) if keeps_entropy else None
        reference_NT = None if batch.reference is None else batch.reference.to(log_probs_NT)
        known = (batch.behaviour, batch.advantages, batch.mask)
        objective_NT = self._objective.loss.objective(log_probs_NT, *known)
        for term in terms:
            objective_NT = objective_NT + term.objective(log_probs_NT, batch.behaviour, reference_NT, entropy_NT, batch.mask)
        loss = -(batch.weights * objective_NT).sum()
        loss.backward()
        self._optimizer.absorb()
        step.losses.append(loss.detach())
        clipped_NT = self._objective.loss.clipped(log_probs_NT.detach(), *known)
        behaviour, clipped = (tensor[batch.mask].cpu() for tensor in (batch.behaviour, clipped_NT))
        step.values.append(TokenValues(chosen.detach().cpu(), behaviour, entropy.detach().cpu(), clipped, batch.versions))

    def _update(self, loss: float) -> float:
        """Step on the summed gradient and count it; returns its norm, NaN where there is no finite loss to follow."""
        if not math.isfinite(loss):
            self._optimizer.discard()
            return math.nan
        grad_norm = self._optimizer.update(self.learning_rate, ranks=self._ranks)
        self._version += math.isfinite(grad_norm)
        return grad_norm


def _spread(advantages: Sequence[NDArray[np.float64]]) -> float:
    """Std over completions of their mean advantage, NaN of none: where no critic is, each token has its completion's."""
    return float(np.std([one.mean() for one in advantages])) if advantages else math.nan
