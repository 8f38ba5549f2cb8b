"""Exponential saturation: its limits, its parameter's range, and planted curves."""

import numpy as np
import pytest

from scalerl.core.units import STEPS
from scalerl.curves import Status, fit
from scalerl.curves.laws import Law
from scalerl.curves.laws.exponential import Exponential
from scalerl.records.curve import Curve


def saturating(*, c, last=400.0, noise=0.002, seed=0, n=21, R0=0.20, A=0.65):
    compute = np.linspace(0.0, last, n)
    reward = A - (A - R0) * np.exp(-compute / c) + np.random.default_rng(seed).normal(0.0, noise, n)
    return Curve.of("saturating", STEPS, compute, reward)


def test_progress_is_that_of_the_equation():
    share = Exponential().progress(np.log([10.0, 20.0, 60.0]), np.log([[20.0]]))
    assert share == pytest.approx(1.0 - np.exp([[-0.5, -1.0, -3.0]]))


def test_no_compute_and_any_compute_are_exact():
    share = Exponential().progress(np.array([-np.inf, 0.0, 1_400.0]), np.array([[-700.0], [0.0], [700.0]]))
    assert share[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert share[:, 1] == pytest.approx([1.0, -np.expm1(-1.0), np.exp(-700.0)])
    assert share[:, 2].tolist() == [1.0, 1.0, 1.0]


def test_c_runs_from_a_rise_before_the_first_point_to_a_straight_line():
    log_last = np.log(50.0)
    (c,) = Exponential().parameters(log_last)
    assert (c.name, c.is_compute) == ("c", True)
    at_first = Exponential().progress(np.array([0.0]), np.array([[c.log_low]]))
    assert at_first.item() == pytest.approx(1.0 - np.exp(-3.0))
    half, whole = Exponential().progress(np.array([log_last - np.log(2.0), log_last]), np.array([[c.log_high]]))[0]
    assert half / whole == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("c", [20.0, 80.0, 200.0])
def test_planted_parameters_lie_in_their_intervals(c):
    answer = fit(saturating(c=c), law="exponential", at=(4_000.0,))
    assert answer.status is Status.OK
    for name, truth in (("R0", 0.20), ("A", 0.65), ("c", c)):
        estimate = answer.parameters[name]
        assert estimate.low < truth < estimate.high
        assert estimate.value == pytest.approx(truth, rel=0.05)
    (forecast,) = answer.forecasts
    assert forecast.low < 0.65 < forecast.high


def test_a_straight_line_bounds_no_ceiling():
    answer = fit(saturating(c=2_000.0), law="exponential")
    assert answer.status is Status.NOT_IDENTIFIED
    A = answer.parameters["A"]
    assert A.low < 0.65 < A.high
    assert (A.value, A.high - A.low > 0.3) == (None, True)


def test_the_law_that_made_the_points_has_the_lower_aicc():
    exponential = saturating(c=80.0, n=40)
    compute = np.linspace(0.0, 400.0, 40)
    with np.errstate(divide="ignore"):
        reward = 0.2 + 0.45 / (1.0 + (80.0 / compute) ** 2.5)
    sigmoid = Curve.of("sigmoid", STEPS, compute, reward + np.random.default_rng(1).normal(0.0, 0.002, 40))
    assert _aicc(exponential, "exponential") < _aicc(exponential, "sigmoid") - 2.0
    assert _aicc(sigmoid, "sigmoid") < _aicc(sigmoid, "exponential") - 10.0


def test_it_is_found_by_its_name():
    assert isinstance(Law.family.select("exponential"), Exponential)


def _aicc(curve, law):
    return fit(curve, law=law).best.aicc
