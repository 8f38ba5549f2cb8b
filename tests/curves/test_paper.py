"""The published procedure against the numbers that it published."""

import json

import numpy as np
import pytest
from scipy.optimize import curve_fit

from scalerl.core.errors import UsageError
from scalerl.core.units import DEVICE_HOURS, FLOPS
from scalerl.curves import Status, fit
from scalerl.records.curve import Curve


def test_printed_asymptotes_come_back(paper):
    # 49 of the 52 digitised series whose fit is printed; the others are 32 generations (.615 for .595), the 32k run, which
    # its first half does not identify, and CISPO clip 4 (.670 for .595), where markers are missing.
    missed = {
        series
        for series in paper.series
        if abs(fit(paper.curve(*series, kind="fit"), law="paper", r0=paper.R0(*series)).best.least_squares["A"] - paper.printed_A(*series))
        > 0.0151
    }
    assert missed == {("fig17_gens", "32gen"), paper.run_32k, ("fig19b_cispo_clip", "clip4")}
    assert 1.0 - len(missed) / len(paper.series) > 0.85


def test_no_pair_of_the_grid_has_a_smaller_sum_of_squares(paper):
    curve = paper.curve("fig2_recipes", "scalerl", kind="fit").window(1_500)
    answer = fit(curve, law="paper", r0=0.40)
    found = {name: estimate.value for name, estimate in answer.parameters.items()}
    squares = len(curve) * answer.best.rmse**2
    for A in (found["A"] - 0.005, found["A"], found["A"] + 0.005):
        for C_mid in np.linspace(100.0, 4000.0, 100)[50:90]:

            def law(compute, B, A=A, C_mid=C_mid):
                return 0.40 + (A - 0.40) / (1.0 + (C_mid / compute) ** B)

            (B,), _ = curve_fit(law, curve.compute, curve.reward, p0=[2.0])
            assert ((law(curve.compute, B) - curve.reward) ** 2).sum() >= squares * (1.0 - 1e-6)


def test_early_points_are_dropped_unless_a_window_is_given(paper):
    curve = paper.curve("fig10a_batch_size", "bs2048", kind="fit")
    assert fit(curve, law="paper", r0=0.40).window[0] > 1_500
    assert fit(curve, law="paper", r0=0.40, window=(0.0, 1e9)).window[0] < 1_500


def test_there_are_no_intervals_and_it_says_so(paper):
    answer = fit(paper.curve("fig2_recipes", "scalerl"), law="paper", r0=0.40, at=(20_000,))
    A = answer.parameters["A"]
    assert A.low == A.value == A.high
    assert answer.forecasts[0].low == answer.forecasts[0].high
    assert any("no intervals" in warning for warning in answer.warnings)


def test_other_axes_scale_the_grid():
    compute = np.linspace(1e20, 2e21, 20)
    reward = 0.2 + 0.4 / (1.0 + (4e20 / compute) ** 1.5)
    answer = fit(Curve.of("flops", FLOPS, [0.0, *compute], [0.2, *reward]), law="paper")
    assert answer.status is Status.OK
    assert answer.parameters["A"].value == pytest.approx(0.6)
    assert answer.parameters["C_mid"].value == pytest.approx(4e20, rel=0.02)
    assert any("scaled to the last point" in warning for warning in answer.warnings)


def test_an_unknown_R0_is_an_error():
    with pytest.raises(UsageError, match="--r0"):
        fit(Curve.of("no start", DEVICE_HOURS, [2_000, 4_000, 8_000, 12_000, 16_000], [0.42, 0.5, 0.55, 0.58, 0.6]), law="paper")


def test_an_asymptote_at_the_grids_end_is_not_identified():
    compute = np.linspace(2_000.0, 20_000.0, 20)
    answer = fit(Curve.of("steep", DEVICE_HOURS, compute, 0.3 + 0.65 * compute / 20_000.0), law="paper", r0=0.3)
    assert answer.status is Status.NOT_IDENTIFIED
    assert answer.parameters["A"].value is None
    assert any("end of the published grid, 0.8" in doubt for doubt in answer.doubts)


def test_its_answer_is_plain_data():
    compute = np.linspace(1_000.0, 4_000.0, 40)
    answer = fit(Curve.of("sure", DEVICE_HOURS, compute, 0.2 + 0.4 / (1.0 + (300.0 / compute) ** 2)), law="paper", r0=0.2)
    assert json.loads(json.dumps(answer.to_dict()))["A"]["identified"] is True
