"""Low-rank adapters in a policy, by peft: what is trained, what it costs, and the merged weights that others see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from scalerl.accounting.flops import ModelFlops, TrainingFlops
from scalerl.core.errors import DataError, UsageError
from scalerl.models._policy import Policy
from scalerl.trainers import Lora

try:
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.lora import LoraLayer
except ImportError as error:
    raise UsageError("LoRA needs the peft library", where="trainer.lora", remedy="pip install peft") from error

_LEAST_BITS = 32
_FROZEN = ".base_layer"
"""What peft puts into the name of a matrix that has an adapter."""


class Adapters:
    """The adapters of a policy, which they change in place."""

    def __init__(self, policy: Policy, settings: Lora) -> None:
        if torch.finfo(policy.module.dtype).bits < _LEAST_BITS:
            # Rounded to bf16, the merged weights of the generator lack most of a small update: .009 nats of mismatch in the mean.
            raise UsageError("adapters need a body of full precision", where="trainer.lora", remedy="set model.dtype to float32")
        self._policy = policy
        self._names = list(policy.tensors())
        base = policy.flops
        targets = "all-linear" if settings.targets == "all-linear" else list(settings.targets)
        config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets, bias="none", task_type="CAUSAL_LM")
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            try:
                inject_adapter_in_model(config, policy.module)
            except ValueError as error:
                raise UsageError(
                    f"no matrix takes these adapters ({' '.join(str(error).split())[:160]})", where="trainer.lora", remedy="change targets"
                ) from None
        self._layers: dict[str, Any] = {name: layer for name, layer in policy.module.named_modules() if isinstance(layer, LoraLayer)}
        strange = [name for name in self._layers if ".layers." not in name]
        asked = () if settings.targets == "all-linear" else settings.targets
        missed = [target for target in asked if not any(name.endswith(target) for name in self._layers)]
        if strange or missed:
            what = f"'{(strange or missed)[0]}' is no matrix of the layers"
            raise UsageError(what, where="trainer.lora.targets", remedy="name some such as q_proj, or all-linear")
        self.merge_flops = sum(2.0 * settings.rank * layer.get_base_layer().weight.numel() for layer in self._layers.values())
        num_adapter_weights = sum(one.numel() for one in policy.module.parameters() if one.requires_grad)
        adapters = ModelFlops(2.0 * num_adapter_weights, 0.0, 0.0)
        self.forward_flops = base + adapters

    def training_flops(self, *, recomputes: bool) -> TrainingFlops:
        """Frozen matrices have a gradient of their input alone; attention and adapters have both of theirs.

        That the first layer's frozen matrices need not even that is left out.
        """
        full = TrainingFlops.of(self.forward_flops, recomputes=recomputes)
        frozen = self._policy.flops
        saved = ModelFlops(frozen.body_per_token, 0.0, frozen.head_per_token)
        return TrainingFlops(full.useful + saved.times(-1.0), full.recomputed)

    def merged(self) -> dict[str, Tensor]:
        """Every weight by the name that it has without adapters, the adapted ones with theirs added."""
        here = {name.replace(_FROZEN, ""): tensor for name, tensor in self._policy.tensors().items()}
        deltas = {f"{name}.weight": layer.get_delta_weight("default") for name, layer in self._layers.items()}
        with torch.no_grad():
            return {name: here[name] + deltas[name].to(here[name].dtype) if name in deltas else here[name] for name in self._names}

    def tensors(self) -> dict[str, Tensor]:
        """Adapters and the frozen weights beside them: a checkpoint holds only their sum."""
        return {name: tensor for name, tensor in self._policy.tensors().items() if "lora_" in name or _FROZEN in name}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave.

        Raises:
            DataError: they are those of other adapters.
        """
        own = self.tensors()
        if {name: one.shape for name, one in own.items()} != {name: one.shape for name, one in tensors.items()}:
            raise DataError("the adapters do not fit the model", where="trainer.lora", remedy="resume with the recipe of the run")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
