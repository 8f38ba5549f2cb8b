"""`trainer_state.json` of transformers' Trainer, and of TRL's, which are made of it.

    {"global_step": 20, "log_history": [{"step": 10, "reward": 0.2}, {"step": 10, "eval_reward": 0.25}, ...]}

A checkpoint holds the history of its run up to it, so that of the last one is read, and so it is when the folder of a
run with its `checkpoint-N` folders is given. The trainer goes on from the history of the checkpoint that it resumes:
what a restart threw away is not in it. The row that sums up the run at its end is no point and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from scalerl.core.errors import DataError
from scalerl.importers import Importer, Sniff, Table, TableBuilder
from scalerl.importers._json import decoded, flat

_FILE = "trainer_state.json"
_HISTORY = "log_history"
_OF_SUMMARY = "train_loss"
"""A key that only the row which sums up a run has: others call theirs `loss`."""
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class TrainerState(Importer):
    """The log of a transformers or TRL trainer."""

    example = {
        _FILE: b'{"global_step": 3, "log_history": [{"step": 1, "num_tokens": 10, "eval_reward": 0.21}, '
        b'{"step": 2, "num_tokens": 20, "eval_reward": 0.33}, {"step": 3, "num_tokens": 30, "eval_reward": 0.41}]}\n'
    }

    def sniff(self, path: Path, head: bytes) -> Sniff:
        """The file's name, or a JSON document with a log history, or the folder of a run or of a checkpoint."""
        if path.is_dir():
            return Sniff.CERTAIN if _states(path) else Sniff.NO
        if not head.lstrip().startswith(b"{"):
            return Sniff.NO
        if path.name == _FILE:
            return Sniff.CERTAIN
        return Sniff.LIKELY if path.suffix == ".json" and f'"{_HISTORY}"'.encode() in head else Sniff.NO

    def read(self, path: Path, labels: AbstractSet[str]) -> Table:
        """The rows of the log history.

        Raises:
            DataError: it is no JSON document with a log history; the trainer may have been stopped while it wrote it.
        """
        files = _states(path) if path.is_dir() else [path]
        states = [_state(file) for file in files]
        latest = max(range(len(states)), key=lambda place: _step(states[place]))
        table = TableBuilder(labels)
        for row in states[latest][_HISTORY]:
            if isinstance(row, dict) and _OF_SUMMARY not in row:
                table.add(flat(row))
        return table.build(notes=[f"read from {files[latest].relative_to(path)}, the latest in the folder"] if path.is_dir() else [])


def _states(folder: Path) -> list[Path]:
    """The states in a folder that may be the latest: that of its last checkpoint and its own, written when the run ended."""
    steps = {int(match[1]): child for child in folder.iterdir() if (match := _CHECKPOINT.fullmatch(child.name))}
    last = [steps[max(steps)]] if steps else []
    return [file for file in (place / _FILE for place in (*last, folder)) if file.is_file()]


def _state(file: Path) -> dict[str, Any]:
    """The document in a file.

    Raises:
        DataError: it has no log history.
    """
    state = decoded(file.read_bytes())
    if not isinstance(state, dict) or not isinstance(state.get(_HISTORY), list):
        raise DataError(f"it is no JSON document with a '{_HISTORY}'", where=str(file), remedy="give one that was written to its end")
    return state


def _step(state: dict[str, Any]) -> float:
    step = state.get("global_step")
    return step if isinstance(step, (int, float)) else 0.0
