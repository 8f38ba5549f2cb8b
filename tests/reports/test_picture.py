"""What is drawn: every point in its role, ranges that hold them, and the linear form."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.core.units import DEVICE_HOURS
from scalerl.curves.result import Fit, Forecast, Status
from scalerl.records.curve import Curve
from scalerl.reports.picture import checks_of_forecasts, checks_of_later_points, compute_range_of, linear_form, picture_of, residuals


def test_every_point_has_one_role(planted):
    picture = picture_of(planted.fit())
    assert [len(part) for part in (picture.earlier, picture.fitted, picture.later)] == [2, 13, 12]
    assert picture.fitted.compute[[0, -1]].tolist() == [2_000.0, 50_000.0]


def test_laws_that_climb_are_drawn_beside(planted):
    assert [name for name, _ in picture_of(planted.fit()).beside] == ["power"]


def test_the_level_of_a_flat_curve_is_not_drawn_as_a_ceiling(planted):
    assert picture_of(planted.fit()).ceiling.value == planted.A
    assert picture_of(replace(planted.fit(), status=Status.FLAT)).ceiling is None


def test_compute_reaches_to_the_last_forecast_or_twice_the_last_point(planted):
    assert compute_range_of([planted.fit()]) == (800.0, 200_000.0)
    assert compute_range_of([replace(planted.fit(), forecasts=())]) == (800.0, 98_000.0)
    assert compute_range_of([replace(planted.fit(), forecasts=(), window=(0.0, np.inf))]) == (800.0, 196_000.0)


def test_without_a_law_the_axis_ends_with_the_points(planted):
    fit = replace(planted.unanswered_fit(Status.COLLAPSED), window=(0.0, np.inf))
    assert compute_range_of([fit]) == (800.0, 98_000.0)
    assert compute_range_of([fit, replace(planted.fit(), forecasts=(), window=(0.0, np.inf))]) == (800.0, 196_000.0)


@given(st.lists(st.just(0.0) | st.floats(1e-9, 1e24), max_size=8), st.floats(0.0, 1e25))
def test_the_range_of_compute_is_never_empty_and_holds_all_points(compute, end):
    curve = Curve.of("any", DEVICE_HOURS, compute, np.full(len(compute), 0.5))
    low, high = compute_range_of([Fit(curve, (0.0, end), 0.9, Status.TOO_FEW_POINTS, None)])
    assert 0.0 < low < high
    assert all(low <= value <= high for value in compute if value > 0.0)


def test_the_range_of_rewards_holds_points_band_and_a_known_ceiling(planted):
    low, high = picture_of(planted.fit()).reward_range
    assert low < planted.R0 - planted.HALF_WIDTH
    assert 0.661 < high < 0.70
    assert picture_of(planted.unbounded_fit()).reward_range[1] < 0.70, "an unbounded ceiling must not press the curve flat"


def test_a_forecast_is_judged_by_the_evaluation_beside_it(planted):
    at_last, far = checks_of_forecasts(planted.fit())
    assert (at_last.measured, at_last.hit) == (pytest.approx(planted.curve().reward[-1]), True)
    assert (far.measured, far.hit) == (None, None)


def test_a_forecast_that_missed_says_so(planted):
    fit = replace(planted.fit(), forecasts=(Forecast(98_000.0, 0.70, 0.69, 0.71),))
    assert checks_of_forecasts(fit)[0].hit is False


def test_later_points_carry_what_the_law_says_there(planted):
    checks = checks_of_later_points(planted.fit())
    assert [check.forecast.compute for check in checks] == planted.curve().compute[-12:].tolist()
    assert checks[0].forecast.mean == pytest.approx(planted.sigmoid(np.array([54_000.0]))[0])


def test_residuals_are_reward_minus_law(planted):
    fit = planted.fit()
    np.testing.assert_allclose(residuals(fit), fit.fitted.reward - planted.sigmoid(fit.fitted.compute))
    assert residuals(planted.unanswered_fit(Status.FLAT)) is None


def test_the_linear_form_of_a_sigmoid_is_C_to_the_B(planted):
    compute = np.array([2e3, 1e4, 4e4])
    fit = replace(planted.fit(), curve=Curve.of("exact", DEVICE_HOURS, compute, planted.sigmoid(compute)))
    found_compute, F = linear_form(fit)
    np.testing.assert_allclose(F, found_compute**planted.B, rtol=1e-9)


def test_the_linear_form_of_huge_compute_does_not_overflow(planted):
    law = planted.sigmoid_law()
    steep = {**law.parameters, "B": replace(law.parameters["B"], value=20.0), "C_mid": replace(law.parameters["C_mid"], value=1e26)}
    curve = Curve.of("huge", DEVICE_HOURS, [2e25, 1e26], [0.5, 0.6])
    fit = replace(planted.fit(), curve=curve, window=(0.0, np.inf), best=replace(law, parameters=steep))
    compute, F = linear_form(fit)
    assert compute.tolist() == [2e25, 1e26]
    assert np.isinf(F).all()


def test_points_outside_of_the_law_have_no_linear_form(planted):
    curve = Curve.of("noisy", DEVICE_HOURS, [2e3, 1e4, 4e4], [planted.R0 - 0.01, 0.5, planted.A + 0.01])
    found_compute, _ = linear_form(replace(planted.fit(), curve=curve))
    assert found_compute.tolist() == [1e4]
    assert linear_form(planted.unbounded_fit()) is None
