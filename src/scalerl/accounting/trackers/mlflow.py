"""MLflow: a run of an experiment, on a tracking server or in RUN/mlflow.db."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalerl.accounting.trackers import MetricsLog, Tracker, needing


class Mlflow(Tracker):
    """Credentials of a server come from the package's own environment variables, never from a recipe."""

    tracking_uri: str | None = None
    """Where runs are kept, e.g. `http://localhost:5000`; an SQLite file in the run folder if left out."""
    experiment: str = "scalerl"

    def build(self, run_folder: Path, *, config: Mapping[str, Any]) -> MetricsLog:
        """A run called as its folder, with the recipe's settings as parameters."""
        with needing("mlflow-skinny", tracker=self.name()):
            from scalerl.accounting.trackers._mlflow import MlflowLog

        return MlflowLog(self, run_folder, config)
