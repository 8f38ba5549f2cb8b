"""Trackio: a local dashboard on SQLite files in Trackio's own folder (TRACKIO_DIR), for `trackio show`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalerl.accounting.trackers import MetricsLog, Tracker, needing


class Trackio(Tracker):
    """Local only: nothing is sent anywhere."""

    project: str = "scalerl"

    def build(self, run_folder: Path, *, config: Mapping[str, Any]) -> MetricsLog:
        """A run called as its folder, with the recipe as its configuration."""
        with needing("trackio", tracker=self.name()):
            from scalerl.accounting.trackers._trackio import TrackioLog

        return TrackioLog(self, run_folder, config)
