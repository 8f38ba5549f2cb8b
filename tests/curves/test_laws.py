"""The laws themselves: exact limits, and how little a new one takes."""

import math

import numpy as np
import pytest

from scalerl.core.errors import UsageError
from scalerl.core.units import STEPS
from scalerl.curves import Law, Parameter, Status, fit
from scalerl.curves.laws.sigmoid import Sigmoid
from scalerl.records.curve import Curve


class HalfLife(Law):
    """mean = A - (A - R0) 2^(-C / h)."""

    def parameters(self, log_last):
        return (Parameter("h", -1.0, log_last + math.log(10.0), is_compute=True),)

    def progress(self, log_compute, log_h):
        return -np.expm1(-math.log(2.0) * np.exp(log_compute - log_h))


@pytest.mark.parametrize("name", Law.family.names())
def test_progress_is_zero_at_no_compute_and_one_in_the_limit(name):
    law = Law.family.select(name)
    middle = [np.array([[0.5 * (parameter.log_low + parameter.log_high)]]) for parameter in law.parameters(3.0)]
    at_zero, far = law.progress(np.array([-np.inf, 200.0]), *middle)[0]
    assert far == pytest.approx(1.0)
    assert at_zero == 0.0 if law.reaches_zero else at_zero < -1e100


def test_half_of_the_gain_is_at_C_mid():
    share = Sigmoid().progress(np.log([5.0, 50.0, 500.0]), np.log([[50.0]]), np.log([[2.0]]))
    assert share == pytest.approx(np.array([[1 / 101, 0.5, 100 / 101]]))


def test_priors_integrate_to_one():
    for name in Law.family.names():
        for parameter in Law.family.select(name).parameters(3.0):
            grid = np.linspace(parameter.log_low, parameter.log_high, 4001)
            assert np.trapezoid(np.exp(parameter.log_prior(grid)), grid) == pytest.approx(1.0, abs=1e-6)


def test_a_new_law_is_one_short_class():
    compute = np.linspace(0.0, 400.0, 21)
    reward = 0.65 - 0.45 * 2.0 ** (-compute / 80.0) + np.random.default_rng(2).normal(0.0, 0.002, 21)
    answer = fit(Curve.of("halving", STEPS, compute, reward), law=HalfLife(), at=(4_000.0,))
    assert answer.status is Status.OK
    for name, truth in (("R0", 0.20), ("A", 0.65), ("h", 80.0)):
        estimate = answer.parameters[name]
        assert estimate.low < truth < estimate.high
        assert estimate.value == pytest.approx(truth, rel=0.03)


def test_a_law_takes_settings():
    weak, strong = Sigmoid(B_log_sd=1.0), Sigmoid(B_centre=5.0, B_log_sd=0.05)
    curve = Curve.of("short", STEPS, [1, 2, 3, 4, 5, 6], [0.30, 0.33, 0.37, 0.40, 0.42, 0.45])
    assert fit(curve, law=strong, r0=0.25).parameters["B"].low > fit(curve, law=weak, r0=0.25).parameters["B"].low


class Rigid(HalfLife):
    """Four unknowns that bend, and none of them compute."""

    num: int = 4

    def parameters(self, log_last):
        return tuple(Parameter(f"p{one}", -1.0, 1.0) for one in range(self.num))

    def progress(self, log_compute, *log_parameters):
        return -np.expm1(-np.exp(log_compute - sum(log_parameters)))


SHORT = Curve.of("short", STEPS, [1, 2, 3, 4, 5, 6, 7, 8], [0.30, 0.33, 0.37, 0.40, 0.42, 0.45, 0.46, 0.48])


def test_a_law_of_too_many_unknowns_is_refused_in_a_sentence():
    with pytest.raises(UsageError, match="4 nonlinear parameters are more than boxes can cover"):
        fit(SHORT, law=Rigid())


def test_an_early_phase_needs_no_compute_among_the_unknowns_of_the_law():
    class Early(Rigid):
        num: int = 1

        def chance_of_early_phase(self):
            return 0.5

    assert fit(SHORT, law=Early()).best.early_phase is not None


@pytest.mark.parametrize("wrong", [{"B_centre": 0.0}, {"B_log_sd": 0.0}, {"B_range": (2.0, 1.0)}, {"B_range": (0.0, 1.0)}])
def test_settings_that_make_no_law_are_refused(wrong):
    with pytest.raises(ValueError, match="B_"):
        Sigmoid(**wrong)
