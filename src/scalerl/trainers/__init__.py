"""Trainers: what turns batches into new weights. The family's base, and the optimizer they share."""

from typing import Annotated

from pydantic import Field

from scalerl.core.components import Component, Settings

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


class Trainer(Component, family="trainers"):
    """One optimizer step per batch, however the batch is cut up."""

    optimizer: AdamW = Field(examples=[{"learning_rate": 5e-7}])
    micro_batch_tokens: int = Field(gt=0, examples=[32768])
    """Unpadded tokens that one forward and backward pass holds; completions are never split."""
