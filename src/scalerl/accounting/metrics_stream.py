"""The stream of a run's metrics: `metrics.jsonl` always, and the trackers that the recipe names.

    {"step": 12, "version": 12, "reward_mean": 0.41, ..., "trainer/loss": -0.02}
    {"step": 12, "time_s": ..., "evaluation/chain": 0.38}

A row per step and a row per evaluation, flat, unknown values null. A tracker that fails is switched off with one warning
and never ends the run: a network is no part of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalerl.accounting.metrics import MetricsRow
from scalerl.accounting.trackers import MetricsLog, Tracker
from scalerl.core.errors import ScalerlError
from scalerl.core.files import write_atomically
from scalerl.records.events import Evaluated

_EVALUATED = "evaluation_version/"
METRICS_FILE = "metrics.jsonl"
"""Name of the stream's own file in a run directory."""


class MetricsStream:
    """Takes rows in the order of their steps; close it when the run ends, however it does."""

    def __init__(
        self,
        run_folder: Path,
        trackers: Sequence[Tracker],
        *,
        config: Mapping[str, Any],
        warn: Callable[[str], None],
        last_step: int | None = None,
        last_evaluated: int | None = None,
    ) -> None:
        """Open the stream of the run in `run_folder`.

        Args:
            run_folder: the run directory.
            trackers: those of the recipe.
            config: the resolved recipe as plain nested tables, for trackers to show.
            warn: takes the sentence about a tracker that failed.
            last_step: the step of the checkpoint that a resumed run goes on from: later rows are cut, since those steps come
                again; without a checkpoint all are, the base's evaluation included.
            last_evaluated: the latest version whose evaluation had ended when it was captured: those of later ones come again.

        Raises:
            UsageError: a tracker's package is not installed.
            ScalerlError: the file cannot be written.
        """
        self._path = run_folder / METRICS_FILE
        self._warn = warn
        self._last_step = last_step or 0
        if self._path.exists():
            known = self._path.read_text(encoding="utf-8").splitlines()
            write_atomically(self._path, "".join(_lines_until(known, last_step=last_step, last_evaluated=last_evaluated)))
        self._logs: dict[str, MetricsLog] = {}
        for tracker in trackers:
            self._guarded(tracker.name(), lambda tracker=tracker: self._open(tracker, run_folder, config))  # type: ignore[misc]

    def log_step(self, row: MetricsRow) -> None:
        """Take the row of a finished step.

        Raises:
            ScalerlError: the disk is full.
        """
        self._last_step = row.step
        self._log(row.flat())

    def log_evaluation(self, event: Evaluated, *, time_s: float) -> None:
        """Take a held-out evaluation, as of the last finished step; one without a grade is no number.

        Raises:
            ScalerlError: the disk is full.
        """
        if event.num_graded:
            pass_rate = event.num_passed / event.num_graded
            row = {f"evaluation/{event.task}": pass_rate, f"{_EVALUATED}{event.task}": event.version}
            self._log({"step": self._last_step, "time_s": time_s, **row})

    def close(self) -> None:
        """Hand over what trackers still hold."""
        for name, log in list(self._logs.items()):
            self._guarded(name, log.close)

    def _log(self, row: Mapping[str, Any]) -> None:
        known = {name: _finite(value) for name, value in row.items()}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known, allow_nan=False) + "\n")
        except OSError as error:
            raise ScalerlError(
                f"the metrics cannot be written ({error.strerror})", where=str(self._path), remedy="free disk space, then resume the run"
            ) from None
        numbers = {name: float(value) for name, value in known.items() if value is not None and name != "step"}
        for name, log in list(self._logs.items()):
            self._guarded(name, lambda log=log: log.log(numbers, step=int(row["step"])))  # type: ignore[misc]

    def _open(self, tracker: Tracker, run_folder: Path, config: Mapping[str, Any]) -> None:
        self._logs[tracker.name()] = tracker.build(run_folder, config=config)

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        """Do the work of a tracker; what it raises, our own errors excepted, switches it off."""
        try:
            work()
        except ScalerlError:
            raise
        except Exception as error:  # Somebody else's code and network, which fail in any way.
            self._logs.pop(name, None)
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._warn(f"The tracker {name} failed and is switched off; metrics.jsonl goes on ({reason}).")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _lines_until(lines: Iterable[str], *, last_step: int | None, last_evaluated: int | None) -> Iterable[str]:
    """The whole lines up to `last_step`, and of the evaluations those up to `last_evaluated`; a torn line is left out."""
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        evaluated = max((version for name, version in row.items() if name.startswith(_EVALUATED)), default=-1)
        if row["step"] <= (-1 if last_step is None else last_step) and evaluated <= (-1 if last_evaluated is None else last_evaluated):
            yield line + "\n"
