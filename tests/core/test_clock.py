"""Clocks: time is an argument and never runs backwards."""

import time

import pytest

from scalerl.core.clock import ManualClock, SystemClock


def test_a_manual_clock_stands_until_advanced():
    clock = ManualClock(10.0)
    assert clock.now_s() == clock.now_s() == 10.0
    clock.advance(2.5)
    assert clock.now_s() == 12.5
    with pytest.raises(AssertionError):
        clock.advance(-1.0)


def test_the_system_clock_ignores_a_wall_clock_that_is_set_back(monkeypatch):
    clock = SystemClock()
    before = clock.now_s()
    assert before == pytest.approx(time.time(), abs=1.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert clock.now_s() >= before
