"""The working class of Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wandb

if TYPE_CHECKING:
    from scalerl.accounting.trackers.wandb import Wandb


class WandbLog:
    """Rows with `step` as their axis: after a resume steps come again, which the package's own counter would refuse."""

    def __init__(self, settings: Wandb, run_folder: Path, config: Mapping[str, Any]) -> None:
        self._run = wandb.init(
            dir=run_folder,
            name=run_folder.name,
            project=settings.project,
            entity=settings.entity,
            mode=settings.mode,
            config=dict(config),
            # Standard output is data, and the run's own: nothing of it is captured or printed to.
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, disable_git=True, disable_code=True),
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, row: Mapping[str, float], *, step: int) -> None:
        """One row of history."""
        self._run.log({**row, "step": step})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
