"""Least-squares answers against the certified values of the NIST Statistical Reference Datasets.

https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml (public domain), three nonlinear sets that are laws of ours:

    Rat42     y = b1 / (1 + exp(b2 - b3 x))      the sigmoid with C = e^x: A = b1, B = b3, C_mid = exp(b2 / b3)
    Misra1a   y = b1 (1 - exp(-b2 x))            exponential saturation: A = b1, c = 1 / b2
    BoxBOD    y = b1 (1 - exp(-b2 x))            the same, six points, the hardest of NIST's higher difficulty

R0 is fixed at 0. NIST certifies eleven digits and asks solvers to find them from two starts each; a fit here has no
start, so one answer stands for both. NIST's y are no pass rates: the bounds of the curve are an amount that none exceeds.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl.core.units import STEPS
from scalerl.curves import fit
from scalerl.curves.laws.exponential import Exponential
from scalerl.curves.laws.sigmoid import Sigmoid
from scalerl.records.curve import Curve

DIGITS = 6


GENTLE = Sigmoid(B_centre=0.1, B_range=(0.01, 1.0), early_phase=0.0)
"""One regime, with exponents a tenth of those in compute: compute that is e^x grows fast."""
RAT42_X = np.array([9, 14, 21, 28, 42, 57, 63, 70, 79], dtype=float)
RAT42 = Curve.of("Rat42", STEPS, np.exp(RAT42_X), [8.93, 10.80, 18.59, 22.33, 39.35, 56.11, 61.73, 64.62, 67.08], bounds=(0, 100))
MISRA1A = Curve.of(
    "Misra1a",
    STEPS,
    [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0],
    [10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78],
    bounds=(0, 500),
)
BOXBOD = Curve.of("BoxBOD", STEPS, [1, 2, 3, 5, 7, 10], [109, 149, 149, 191, 213, 224], bounds=(0, 500))

RAT42_C_MID = np.exp(2.6180768402 / 0.067359200066)
CERTIFIED = {
    "Rat42": (RAT42, GENTLE, {"A": 72.462237576, "B": 0.067359200066, "C_mid": RAT42_C_MID}, 8.0565229338),
    "Misra1a": (MISRA1A, Exponential(), {"A": 238.94212918, "c": 1.0 / 5.5015643181e-04}, 0.12455138894),
    "BoxBOD": (BOXBOD, Exponential(), {"A": 213.80940889, "c": 1.0 / 0.54723748542}, 1168.0088766),
}
"""Data, law, certified parameters and residual sum of squares."""


def least_squares(curve, law, **settings):
    """The optimum of `law` itself, whatever the status says of it."""
    answer = fit(curve, law=law, r0=0.0, **settings)
    return next(fitted for fitted in (answer.best, *answer.alternatives) if fitted.law == law.name()).least_squares


def mean(name, at, compute):
    """The law's mean, written out once more."""
    if name == "Rat42":
        return at["A"] / (1.0 + (at["C_mid"] / compute) ** at["B"])
    return -at["A"] * np.expm1(-compute / at["c"])


@pytest.mark.parametrize("name", CERTIFIED)
def test_the_certified_digits_come_back(name):
    curve, law, certified, squares = CERTIFIED[name]
    found = least_squares(curve, law)
    assert found["R0"] == 0.0
    for parameter, value in certified.items():
        assert -np.log10(abs(found[parameter] / value - 1.0)) >= DIGITS, parameter
    residuals = curve.reward - mean(name, found, curve.compute)
    assert residuals @ residuals == pytest.approx(squares, rel=1e-9)


@pytest.mark.parametrize("name", CERTIFIED)
def test_the_certified_values_are_those_of_the_data(name):
    curve, _, certified, squares = CERTIFIED[name]
    residuals = curve.reward - mean(name, certified, curve.compute)
    assert residuals @ residuals == pytest.approx(squares, rel=1e-8)


@pytest.mark.parametrize("name", CERTIFIED)
@pytest.mark.parametrize(("compute_unit", "reward_unit"), [(1e21, 1.0), (1.0, 100.0), (1e21, 100.0)])
def test_units_do_not_matter(name, compute_unit, reward_unit):
    curve, law, *_ = CERTIFIED[name]
    (low, high), last = curve.bounds, float(curve.compute[-1])
    scaled = Curve.of(name, STEPS, curve.compute * compute_unit, curve.reward * reward_unit, bounds=(low * reward_unit, high * reward_unit))
    plain = fit(curve, law=law, r0=0.0, at=(2.0 * last,))
    other = fit(scaled, law=law, r0=0.0, at=(2.0 * last * compute_unit,))
    assert other.status is plain.status
    for parameter, before in plain.parameters.items():
        unit = {"reward": reward_unit, "compute": compute_unit, "": 1.0}[before.unit]
        after = other.parameters[parameter]
        assert (after.low, after.high) == pytest.approx((before.low * unit, before.high * unit), rel=1e-3)
        assert other.best.least_squares.get(parameter, 0.0) == pytest.approx(plain.best.least_squares.get(parameter, 0.0) * unit, rel=1e-3)
    before, after = plain.forecasts[0], other.forecasts[0]
    assert (after.mean, after.low, after.high) == pytest.approx(
        (before.mean * reward_unit, before.low * reward_unit, before.high * reward_unit), rel=1e-3
    )


@settings(max_examples=5, deadline=None)
@given(A=st.floats(0.4, 0.9), log_C_mid=st.floats(0.5, 3.0), B=st.floats(0.8, 3.5))
def test_points_without_noise_give_the_law_back(A, log_C_mid, B):
    at = {"R0": 0.1, "A": A, "B": B, "C_mid": float(np.exp(log_C_mid))}
    compute = np.geomspace(1.0, 100.0, 14)
    curve = Curve.of("exact", STEPS, compute, 0.1 + (A - 0.1) / (1.0 + (at["C_mid"] / compute) ** B))
    found = fit(curve, r0=0.1).best.least_squares
    assert {name: found[name] for name in at} == pytest.approx(at, rel=1e-5)
