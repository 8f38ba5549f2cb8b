"""What every law keeps: its progress is one, units of compute and reward do not matter, and it knows its own curves again."""

from __future__ import annotations

import numpy as np
import pytest

from scalerl.core.units import FLOPS
from scalerl.curves import fit
from scalerl.curves.laws import Law
from scalerl.records.curve import Curve, FloatArray

LAWS = Law.family.names()
LOG_LAST = float(np.log(100.0))
"""The planted points span two decades of compute."""


def typical_parameters(law: Law) -> list[FloatArray]:
    """The middle of each prior, as (1, 1) arrays of logarithms."""
    return [
        np.array([[0.5 * (parameter.log_low + parameter.log_high) if np.isinf(parameter.log_sd) else parameter.log_centre]])
        for parameter in law.parameters(LOG_LAST)
    ]


def planted(name: str, *, unit: float = 1.0, largest: float = 1.0) -> tuple[Curve, Curve]:
    """24 points of the law with typical parameters between .1 and .7 of the reward's range, and four points beyond them."""
    law: Law = Law.family.select(name)
    log_compute = np.concatenate([np.linspace(0.0, LOG_LAST, 24), LOG_LAST + np.log([1.1, 1.3, 1.6, 2.0])])
    progress = np.broadcast_to(law.progress(log_compute, *typical_parameters(law)), (1, log_compute.size))[0]
    climbed = (progress - progress[0]) / (1.0 - progress[0]) if progress[0] < 1.0 else np.zeros_like(progress)
    noise = 0.002 * np.sin(2.4 * np.arange(log_compute.size) ** 2)
    reward = largest * (0.1 + 0.6 * climbed + noise)
    whole = Curve.of(name, FLOPS, unit * np.exp(log_compute), reward, bounds=(0.0, largest))
    last = unit * np.exp(LOG_LAST) * 1.01
    return whole.window(0.0, last), whole.window(last)


@pytest.mark.parametrize("name", LAWS)
def test_its_progress_rises_to_one_and_stands_zero_compute(name: str) -> None:
    """S never falls with compute, stays at or under 1 and tends to it; at C = 0 it is 0 unless the law leaves that out."""
    law: Law = Law.family.select(name)
    log_compute = np.concatenate([[-np.inf], np.linspace(-3.0, 200.0, 500)])
    progress = np.broadcast_to(law.progress(log_compute, *typical_parameters(law)), (1, log_compute.size))[0]
    assert (np.diff(progress) >= -1e-12).all()
    assert progress[-1] == pytest.approx(1.0, abs=1e-6)
    assert progress.max() <= 1.0 + 1e-12
    if law.reaches_zero:
        assert progress[0] == 0.0


@pytest.mark.parametrize("name", LAWS)
def test_it_forecasts_its_own_curve(name: str) -> None:
    """Fitted to the first points of a curve of its own, it holds the later ones in its band."""
    early, late = planted(name)
    answer = fit(early, law=name, r0="free")
    assert answer.best is not None
    band = answer.best.predict(late.compute)
    assert np.abs(band.mean - late.reward).max() < 0.02
    assert ((band.low <= late.reward) & (late.reward <= band.high)).all()


@pytest.mark.parametrize("name", LAWS)
def test_units_do_not_matter(name: str) -> None:
    """FLOP in place of GPU-hours and percentages in place of fractions give the same answer."""
    early, late = planted(name)
    scaled_early, scaled_late = planted(name, unit=1e21, largest=100.0)
    answer, scaled = fit(early, law=name, r0="free"), fit(scaled_early, law=name, r0="free")
    assert answer.best is not None
    assert scaled.best is not None
    assert scaled.status == answer.status
    np.testing.assert_allclose(scaled.best.predict(scaled_late.compute).high, 100.0 * answer.best.predict(late.compute).high, rtol=1e-3)
    assert scaled.best.parameters["A"].high == pytest.approx(100.0 * answer.best.parameters["A"].high, rel=1e-3)
