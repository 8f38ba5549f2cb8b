"""The working class of MLflow: its client, without the package's global run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

if TYPE_CHECKING:
    from scalerl.accounting.trackers.mlflow import Mlflow

_PARAMS_AT_ONCE = 100
"""The most that its interface takes in one call."""


class MlflowLog:
    """Metrics of one run."""

    def __init__(self, settings: Mlflow, run_folder: Path, config: Mapping[str, Any]) -> None:
        self._client = MlflowClient(tracking_uri=settings.tracking_uri or f"sqlite:///{run_folder.absolute() / 'mlflow.db'}")
        found = self._client.get_experiment_by_name(settings.experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(settings.experiment)
        self._run = self._client.create_run(experiment, run_name=run_folder.name).info.run_id
        params = [Param(path, str(value)) for path, value in _leaves(config)]
        for start in range(0, len(params), _PARAMS_AT_ONCE):
            self._client.log_batch(self._run, params=params[start : start + _PARAMS_AT_ONCE])

    def log(self, row: Mapping[str, float], *, step: int) -> None:
        """One metric for each number."""
        at_ms = int(1000.0 * row["time_s"])
        self._client.log_batch(self._run, metrics=[Metric(name, value, at_ms, step) for name, value in row.items()])

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run)


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting with its dotted path."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
