"""One device, one process."""

from scalerl.trainers import Trainer


class Single(Trainer):
    """The trainer of the laptop scale."""
