"""The working class of TensorBoard: its own event-file writer, which needs neither torch nor TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter


class TensorboardLog:
    """One event file per start of the run; TensorBoard joins those of one folder by step."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._writer = EventFileWriter(str(folder))
        recipe = "    " + json.dumps(config, indent=2).replace("\n", "\n    ")
        self._writer.add_event(Event(summary=text_pb("recipe", recipe), step=0))

    def log(self, row: Mapping[str, float], *, step: int) -> None:
        """One event with a scalar for each number."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._writer.add_event(Event(wall_time=row["time_s"], step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """Write what is queued."""
        self._writer.close()
