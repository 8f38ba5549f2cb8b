"""A long run does not grow; `make soak` lets one run for two hours."""

from __future__ import annotations

import pytest

from tests.reliability.soak import Sample, Trend, growth, soak


@pytest.mark.slow
def test_two_thousand_steps_hold_no_more_in_the_end_than_after_the_warm_up(tmp_path):
    trends = soak(tmp_path / "run", "budget.steps=2000", every_s=0.5)
    assert {trend.role for trend in trends} == {"orchestrator", "trainer", "generator"}
    assert [str(trend) for trend in trends if not trend.is_flat] == []


def test_what_grows_is_found():
    """A tenth more memory, and one file more, over the length of a run."""
    samples = [Sample(100.0 + number / 100.0, 7 + (number > 800), 3, 1) for number in range(1000)]
    grown = {trend.quantity: trend for trend in growth("trainer", samples)}
    assert grown["resident_mb"] == Trend("trainer", "resident_mb", pytest.approx(103.245), pytest.approx(109.495))
    assert [quantity for quantity, trend in grown.items() if not trend.is_flat] == ["resident_mb", "num_files"]
