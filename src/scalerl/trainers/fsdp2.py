"""Weights, gradients and optimizer state sharded over many devices (torch FSDP2)."""

from scalerl.trainers import Trainer


class Fsdp2(Trainer):
    """The trainer of models that one device cannot hold."""

    activation_checkpointing: bool = True
    """Whether activations are computed again in the backward pass; booked as recomputation."""
