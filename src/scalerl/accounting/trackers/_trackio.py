"""The working class of Trackio."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trackio

if TYPE_CHECKING:
    from scalerl.accounting.trackers.trackio import Trackio


class TrackioLog:
    """One run of a project; a resumed run goes on with that of its name."""

    def __init__(self, settings: Trackio, run_folder: Path, config: Mapping[str, Any]) -> None:
        with _talking_to_stderr():
            self._run = trackio.init(
                project=settings.project,
                name=run_folder.name,
                config=dict(config),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, row: Mapping[str, float], *, step: int) -> None:
        """One row."""
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        """Write what is queued."""
        with _talking_to_stderr():
            trackio.finish()


def _talking_to_stderr() -> contextlib.redirect_stdout[Any]:
    """The package prints how to open its dashboard: that is talk, and standard output is data."""
    return contextlib.redirect_stdout(sys.stderr)
