"""Spawned roles import their stand-ins by name, from the folder that holds `tests`."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _stand_ins_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
