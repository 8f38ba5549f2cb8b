"""AdamW on fp32 weights, whatever precision the body has.

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2        w = (1 - lr * decay) w - lr * m^ / (sqrt(v^) + eps)

m^ and v^ are corrected for their start at 0 (arXiv 1711.05101, algorithm 2). Only matrices decay, embeddings included: gains
of norms and biases do not. A bf16 weight of .02 cannot take a step below 6e-5, which a learning rate of 5e-7 never makes: such
weights get an fp32 master copy, whose rounding the body computes with; gradients are summed in fp32 too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Self

import torch
from torch import Tensor
from torch.nn import Parameter

from scalerl.core.errors import DataError
from scalerl.trainers import AdamW
from scalerl.trainers._ranks import ALONE, Ranks

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_MASTER = "master"


class MasterAdamW:
    """The optimizer of named parameters; sum gradients into them, then `update`."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, Parameter]],
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        clip_norm: float = 1.0,
    ) -> None:
        self._parameters = {name: parameter for name, parameter in parameters if parameter.requires_grad}
        self._masters = {name: _master(parameter) for name, parameter in self._parameters.items()}
        self._clip_norm = clip_norm
        matrices = [master for master in self._masters.values() if master.ndim >= 2]
        others = [master for master in self._masters.values() if master.ndim < 2]
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
        self._adamw = torch.optim.AdamW([group for group in groups if group["params"]], betas=betas, eps=eps, fused=True)

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, Parameter]], settings: AdamW) -> Self:
        """The optimizer that a recipe's settings describe; the rate is given with each update."""
        return cls(
            parameters,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            clip_norm=settings.clip_norm,
        )

    @property
    def num_bytes(self) -> int:
        """Gradients, moments and master copies, after the first update."""
        return sum(tensor.nbytes for tensor in self.tensors().values()) + sum(master.nbytes for master in self._masters.values())

    def absorb(self) -> None:
        """Take the gradients of a micro-batch over from the body; call it after each backward pass."""
        for name, parameter in self._parameters.items():
            master = self._masters[name]
            if master is not parameter and parameter.grad is not None:
                grad = parameter.grad.float()
                master.grad = grad if master.grad is None else master.grad.add_(grad)
                parameter.grad = None

    def discard(self) -> None:
        """Forget all gradients."""
        for weight in (*self._parameters.values(), *self._masters.values()):
            weight.grad = None

    def take_gradients(self) -> dict[str, Tensor]:
        """The gradients by name, 0 where there are none; they are forgotten here."""
        self.absorb()
        gradients = {
            name: torch.zeros_like(master) if master.grad is None else master.grad.detach() for name, master in self._masters.items()
        }
        self.discard()
        return gradients

    def give_gradients(self, gradients: Mapping[str, Tensor]) -> None:
        """Put back what `take_gradients` took, or a sum of such."""
        for name, gradient in gradients.items():
            self._masters[name].grad = gradient

    def update(self, learning_rate: float, *, ranks: Ranks = ALONE) -> float:
        """One step on the gradients of all `ranks`, clipped to `clip_norm`; returns their norm before that.

        A norm that is not finite is no step: weights and moments stand.
        """
        self.absorb()
        if ranks.number > 1:
            self.give_gradients(gradients := self.take_gradients())
            ranks.sum(gradients.values())
        norm = torch.nn.utils.clip_grad_norm_(self._masters.values(), self._clip_norm).item()
        if math.isfinite(norm):
            for group in self._adamw.param_groups:
                group["lr"] = learning_rate
            self._adamw.step()
            self._round_to_body()
        self.discard()
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, but for the weights of the body."""
        found = {}
        for name, master in self._masters.items():
            if master is not self._parameters[name]:
                found[f"{name}.{_MASTER}"] = master.detach()
            for moment, tensor in self._adamw.state[master].items():
                found[f"{name}.{moment}"] = tensor
        return found

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave.

        Raises:
            DataError: they are those of other parameters.
        """
        known = {f"{name}.{part}" for name in self._masters for part in (*_MOMENTS, _MASTER)}
        if strange := sorted(tensors.keys() - known):
            raise DataError(f"the optimizer state does not fit the model: {strange[0]}", remedy="resume with the recipe of the run")
        for name, master in self._masters.items():
            if master is not self._parameters[name]:
                with torch.no_grad():
                    master.copy_(tensors[f"{name}.{_MASTER}"])
            moments = {moment: tensors[f"{name}.{moment}"] for moment in _MOMENTS if f"{name}.{moment}" in tensors}
            if moments:
                self._adamw.state[master] = {moment: tensor.clone().to(master.device) for moment, tensor in moments.items()}

    def _round_to_body(self) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                if self._masters[name] is not parameter:
                    parameter.copy_(self._masters[name])


def _master(parameter: Parameter) -> Parameter:
    precise = parameter.dtype in (torch.float32, torch.float64)
    return parameter if precise else Parameter(parameter.detach().float())
