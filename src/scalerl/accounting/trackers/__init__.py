"""Trackers: where a run's metrics are shown beside its own files. The family's base.

`metrics.jsonl` in the run folder is always written (`accounting/metrics_stream.py`); a tracker is on top of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from scalerl.core.components import Component
from scalerl.core.errors import UsageError


class MetricsLog(Protocol):
    """A tracker at work: rows go in, in order of their steps. Whatever it raises switches it off, and never ends the run."""

    def log(self, row: Mapping[str, float], *, step: int) -> None:
        """Take the finite numbers of one step, by name."""
        ...

    def close(self) -> None:
        """Hand over what is still in memory."""
        ...


class Tracker(Component, family="trackers"):
    """Somebody else's place for metrics; its package comes with `pip install 'scalerl[trackers]'`."""

    @abstractmethod
    def build(self, run_folder: Path, *, config: Mapping[str, Any]) -> MetricsLog:
        """The tracker at work for the run in `run_folder`, whose name it takes.

        Args:
            run_folder: the run directory; what the tracker writes to disk lies in it.
            config: the resolved recipe as plain nested tables.

        Raises:
            UsageError: its package is not installed.
        """


@contextmanager
def needing(package: str, *, tracker: str) -> Iterator[None]:
    """Tell a missing `package` as the UsageError that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"it needs the package {package}, which is not installed ({error})",
            where=f"trackers: {tracker}",
            remedy="install it with: pip install 'scalerl[trackers]'",
        ) from None
