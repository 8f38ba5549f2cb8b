"""TensorBoard: event files in RUN/tensorboard, for `tensorboard --logdir RUN`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalerl.accounting.trackers import MetricsLog, Tracker, needing


class Tensorboard(Tracker):
    """Scalars by step; it has nothing to set."""

    def build(self, run_folder: Path, *, config: Mapping[str, Any]) -> MetricsLog:
        """A writer of event files, with the recipe as a text beside the scalars."""
        with needing("tensorboard", tracker=self.name()):
            from scalerl.accounting.trackers._tensorboard import TensorboardLog

        return TensorboardLog(run_folder / "tensorboard", config)
