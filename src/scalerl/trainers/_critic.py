"""The critic at work: a value for the state before each own token, from a body of its own with a scalar head.

Returns need the values of one completion only, so the pass that trains is also the one that values: the first pass over a
batch costs one forward and one backward. Its head begins at 0, its body at the policy's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Linear
from transformers import PreTrainedModel

from scalerl.accounting.flops import ModelFlops, TrainingFlops
from scalerl.accounting.meter import Meter
from scalerl.models._policy import Policy, last_hidden, recompute_activations
from scalerl.objective.advantages.critic import Critic
from scalerl.records.cost import Activity
from scalerl.trainers import Trainer
from scalerl.trainers._optimizer import MasterAdamW
from scalerl.trainers._passes import Books, Passes
from scalerl.trainers._ranks import Ranks
from scalerl.trainers._rows import Row

DETAIL = "critic"
"""What its work is booked as."""


@dataclass(frozen=True, slots=True, eq=False)
class Valued:
    """A row with what the critic said of it before it learnt, arrays over its own tokens."""

    row: Row
    values: NDArray[np.float64]
    advantages: NDArray[np.float64]
    """Not scaled."""
    returns: NDArray[np.float64]


class CriticLearner:
    """Values rows and learns from them."""

    def __init__(self, policy: Policy, settings: Critic, *, trainer: Trainer, meter: Meter, ranks: Ranks) -> None:
        self._settings = settings
        self._meter = meter
        self._ranks = ranks
        hidden_size = int(policy.config.hidden_size)
        precise = torch.promote_types(policy.module.dtype, torch.float32)
        head = Linear(hidden_size, 1, bias=False, dtype=precise, device=policy.device)
        torch.nn.init.zeros_(head.weight)
        body = cast("PreTrainedModel", copy.deepcopy(policy.module.base_model))
        if trainer.activation_checkpointing:
            recompute_activations(body)
        self._module = torch.nn.ModuleDict({"body": body, "head": head})
        forward = ModelFlops(policy.flops.body_per_token, policy.flops.attention_per_pair, 2.0 * hidden_size)
        books = Books(meter, Activity.TRAIN, TrainingFlops.of(forward, recomputes=trainer.activation_checkpointing), DETAIL)
        self._passes = Passes.of(policy, books=books, trainer=trainer, body=self._hidden)
        self._valued: list[Valued] = []
        self._num_tokens = 0
        self._optimizer = MasterAdamW.of(self._module.named_parameters(), trainer.optimizer)

    def value(self, rows: Sequence[Row], *, num_tokens: int, between: Callable[[], None]) -> tuple[list[Row], dict[str, float]]:
        """The rows with scaled advantages, and what was measured; the gradient of the first pass waits for `learn`.

        Args:
            rows: this rank's share of the batch.
            num_tokens: own tokens of the whole batch, over which the loss is a mean.
            between: called after each micro-batch.
        """
        with self._meter.doing(Activity.TRAIN, DETAIL):
            self._num_tokens = num_tokens
            self._valued, loss = self._pass(rows, (), between=between)
            everyone = self._ranks.gathered([(one.values, one.advantages, one.returns) for one in self._valued])
            scale = self._settings.divisor([advantages for _, advantages, _ in everyone])
            told = [replace(one.row, advantages=one.row.over_own(one.advantages / scale)) for one in self._valued]
            return told, {"critic_loss": loss, **_explained(everyone)}

    def learn(self, learning_rate: float, *, between: Callable[[], None]) -> dict[str, float]:
        """As many steps on what was valued as there are passes, at the policy's rate times the factor; what was measured."""
        with self._meter.doing(Activity.TRAIN, DETAIL):
            norms = []
            for number in range(self._settings.passes):
                if number:
                    self._pass([one.row for one in self._valued], self._valued, between=between)
                norms.append(self._optimizer.update(learning_rate * self._settings.learning_rate_factor, ranks=self._ranks))
            return {"critic_grad_norm": norms[0]}

    @property
    def num_bytes(self) -> int:
        """Weights, gradients and optimizer state."""
        return sum(parameter.nbytes for parameter in self._module.parameters()) + self._optimizer.num_bytes

    def tensors(self) -> dict[str, Tensor]:
        """Weights and optimizer state."""
        weights = {f"critic.{name}": parameter.detach() for name, parameter in self._module.named_parameters()}
        return weights | {f"optimizer.{name}": tensor for name, tensor in self._optimizer.tensors().items()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave.

        Raises:
            KeyError, RuntimeError: they are those of another critic.
            DataError: the optimizer's are.
        """
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                parameter.copy_(tensors[f"critic.{name}"])
        self._optimizer.load_tensors(
            {name.removeprefix("optimizer."): one for name, one in tensors.items() if name.startswith("optimizer.")}
        )

    def _pass(self, rows: Sequence[Row], valued: Sequence[Valued], *, between: Callable[[], None]) -> tuple[list[Valued], float]:
        """Gradients of one pass over `rows`, those of `valued` from the second pass on; returns what was valued, and the loss."""
        self._optimizer.discard()
        by_row = {id(one.row): one for one in valued}
        done, total = [], 0.0
        for batch, states in self._passes.over(rows):
            values = self._values(states)
            old = [by_row[id(row)] for row in batch.rows] if by_row else self._judged(batch.rows, batch.split(values.detach()))
            loss = self._loss(values, old) / self._num_tokens
            loss.backward()
            self._optimizer.absorb()
            done += old
            total += loss.item()
            between()
        return done, sum(self._ranks.gathered([total]))

    def _hidden(self, input_ids: Tensor, **arguments: Any) -> Tensor:
        """(N, L, H) last hidden states of the critic's own body."""
        return last_hidden(self._module["body"], input_ids, **arguments)

    def _values(self, states: Tensor) -> Tensor:
        """(M,) V of (M, H) states, with gradient."""
        head = cast("Linear", self._module["head"])
        return cast("Tensor", head(states.to(head.weight.dtype))).squeeze(-1)

    def _judged(self, rows: Sequence[Row], values: Sequence[NDArray[np.float64]]) -> list[Valued]:
        return [Valued(row, known, *self._settings.of_tokens(known, row.reward)) for row, known in zip(rows, values, strict=True)]

    def _loss(self, values: Tensor, old: Sequence[Valued]) -> Tensor:
        """Sum over tokens of half the squared error, that of the value or of the clipped one, whichever is larger."""
        returns, before = (
            torch.from_numpy(np.concatenate([getattr(one, name) for one in old])).to(values) for name in ("returns", "values")
        )
        errors = (values - returns).square()
        if self._settings.value_clip is not None:
            held = before + (values - before).clamp(-self._settings.value_clip, self._settings.value_clip)
            errors = errors.maximum((held - returns).square())
        return 0.5 * errors.sum()


def _explained(everyone: Sequence[tuple[NDArray[np.float64], ...]]) -> dict[str, float]:
    """How much of the returns' variance the values knew of; below 0 a constant would have been better."""
    if not everyone:
        return {}
    values, _, returns = (np.concatenate(arrays) for arrays in zip(*everyone, strict=True))
    spread = float(returns.var())
    explained = 1.0 - float((returns - values).var()) / spread if spread > 0.0 else float("nan")
    return {"critic_explained_variance": explained, "critic_mean_value": float(values.mean())}
