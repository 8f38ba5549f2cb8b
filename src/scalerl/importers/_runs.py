"""Logs that hold several runs: the label that tells them apart, and a name for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

RUN = "run"
"""Label column that holds the name of a row's run."""
_SHOWN = 8
"""Characters of an identifier that tell two runs of one name apart, as the stores' own pages show it."""


def distinct_names(name_of: Mapping[str, str]) -> dict[str, str]:
    """Every run's name by its identifier, which is added where another run has the same name or where there is none."""
    count = Counter(name_of.values())
    return {run: (f"{name} ({run[:_SHOWN]})" if name else run) if count[name] > 1 or not name else name for run, name in name_of.items()}
