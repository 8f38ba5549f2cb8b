"""Weights & Biases: a run of a project, online, or in RUN/wandb until `wandb sync` uploads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from scalerl.accounting.trackers import MetricsLog, Tracker, needing


class Wandb(Tracker):
    """The key comes from the package's own login or WANDB_API_KEY, never from a recipe."""

    mode: Literal["online", "offline"] = "online"
    """Whether metrics go to the server at once, or to files only."""
    project: str = "scalerl"
    entity: str | None = None
    """User or team; the login's own if left out."""

    def build(self, run_folder: Path, *, config: Mapping[str, Any]) -> MetricsLog:
        """A run called as its folder, with the recipe as its configuration."""
        with needing("wandb", tracker=self.name()):
            from scalerl.accounting.trackers._wandb import WandbLog

        return WandbLog(self, run_folder, config)
