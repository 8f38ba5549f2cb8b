"""Runs that are killed, whole or in part, lose nothing; `make kills` kills a hundred times."""

from __future__ import annotations

from tests.reliability.killing import drawn, survive


def test_a_run_that_is_killed_five_times_is_one_that_was_not(tmp_path):
    happened = survive(tmp_path / "run", drawn(5, seed=1))
    assert sum(happened[whom] for whom in ("generator", "trainer", "orchestrator", "all")) >= 4
