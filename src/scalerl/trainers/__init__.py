"""Trainers: what turns batches into new weights. The family's base, and the optimizer they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from scalerl.accounting.meter import Meter
from scalerl.core.components import Component, Settings
from scalerl.objective import Objective
from scalerl.records.rollout import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from scalerl.models._policy import Policy

Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
"""Decay of a running mean; at 1 it would forget nothing."""


class AdamW(Settings):
    """Decoupled weight decay (arXiv 1711.05101), constant rate after a linear warm-up."""

    learning_rate: float = Field(gt=0.0, examples=[5e-7])
    warmup_steps: int = Field(default=100, ge=0)
    """Steps over which the rate rises from 0."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    """Not stated by arXiv 2510.13786: the usual pair for language models."""
    eps: float = Field(default=1e-15, gt=0.0)
    weight_decay: float = Field(default=0.01, ge=0.0)
    clip_norm: float = Field(default=1.0, gt=0.0)
    """Largest norm of the gradient. Not stated by arXiv 2510.13786: the usual 1."""


class Lora(Settings):
    """Low-rank adapters beside frozen matrices, W + (alpha / rank) B A (arXiv 2106.09685), by the peft library (`pip install peft`).

    The generators get merged weights, so they need not know, and checkpoints hold merged weights too. The body must be float32:
    rounded to bf16, what the generators get would lack most of a small update.
    """

    rank: int = Field(default=32, gt=0)
    alpha: int = Field(default=32, gt=0)
    """The update counts alpha / rank times."""
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Which matrices of the layers: all of them, or those whose names end so, such as `q_proj`."""
    seed: int = Field(default=0, ge=0)
    """Of A's first values; B begins at 0."""


class Learner(Protocol):
    """A trainer at work: blocking; it books its work (train, checkpoint) with the meter that it was built with."""

    @property
    def version(self) -> int:
        """The weights in use: one more after each update."""
        ...

    def train(self, batch: Batch, *, between: Callable[[], None]) -> dict[str, float | None]:
        """One optimizer step; calls `between` after each micro-batch.

        Returns what was measured. A batch without a trainable token is no update: `version` stands.
        """
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """The weights in use by name; views, not copies."""
        ...

    def score(self, probe: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> NDArray[np.float32]:
        """Log-probability in nats of every token of the second parts, one after the other, computed as training computes it."""
        ...

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimizer state and version into `folder`."""
        ...

    def restore(self, folder: Path) -> None:
        """Take up optimizer state and version from `folder`; the policy's weights are already those of it."""
        ...


class Trainer(Component, family="trainers"):
    """One optimizer step per batch, however the batch is cut up."""

    optimizer: AdamW = Field(examples=[{"learning_rate": 5e-7}])
    micro_batch_tokens: int = Field(gt=0, examples=[32768])
    """Unpadded tokens in memory at once, with the prompts that completions share; completions are never split."""
    activation_checkpointing: bool = False
    """Whether the layers' activations are computed again in the backward pass, to save memory; booked as overhead."""
    lora: Lora | None = None
    """Adapters to train instead of the weights."""
    noise_every_steps: int | None = Field(default=None, gt=0)
    """Measure the gradient's noise at every so many steps: the same gradient in smaller pieces, two for each prompt, by one process."""

    @abstractmethod
    def build(self, policy: Policy, *, objective: Objective, temperature: float, meter: Meter) -> Learner:
        """The trainer at work on `policy`, at version 0; `temperature` divides the logits as it does when sampling."""
