"""What shorter runs would have predicted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scalerl.core.errors import UsageError
from scalerl.core.units import STEPS
from scalerl.curves import Status, fit
from scalerl.curves.backtest import Backtest, Prefix, backtest
from scalerl.curves.result import Estimate
from scalerl.importers import read_curves
from scalerl.records.curve import Curve

DATA = Path(__file__).parents[2] / "examples" / "data"


@pytest.fixture(scope="module")
def whole():
    (curve,) = read_curves(DATA / "paper_100k_run.csv")
    return fit(curve, r0=0.40, window=(1_500, np.inf))


@pytest.fixture(scope="module")
def tested(whole):
    return backtest(whole)


def test_a_fifth_of_the_100k_run_would_have_predicted_its_end(tested):
    assert tested.end == pytest.approx(0.6394, abs=5e-4)
    assert 0.1 < tested.enough.share < 0.35
    assert tested.bounded.share <= 0.35
    assert all(abs(prefix.error) <= 0.02 for prefix in tested.prefixes if prefix.share >= tested.enough.share)
    short = [prefix for prefix in tested.prefixes if prefix.status is Status.NOT_IDENTIFIED]
    assert short
    assert all(prefix.A.value is None for prefix in short)


def test_a_prefix_is_the_fit_of_its_points_with_the_settings_of_the_whole(whole, tested):
    prefix = tested.prefixes[8]
    again = fit(whole.curve.window(high=prefix.compute), r0=0.40, window=(1_500, np.inf))
    assert (prefix.points, prefix.A) == (len(again.fitted), again.parameters["A"])
    end = whole.curve.window(0.9 * whole.window[1])
    assert prefix.error == pytest.approx(float(again.band(end.compute).mean.mean() - end.reward.mean()))


def test_no_prefix_has_seen_the_end(whole, tested):
    assert max(prefix.compute for prefix in tested.prefixes) < 0.9 * whole.window[1]
    assert len({prefix.points for prefix in tested.prefixes}) == len(tested.prefixes)


def prefix(share, error, *, is_bounded=True):
    A = Estimate(0.6 if is_bounded else None, 0.5, 0.7, identified=is_bounded)
    forecast = None if error is None else Estimate(0.6 + error, 0.5, 0.7)
    return Prefix(share, share, 10, Status.OK, A, forecast, error)


def test_a_lucky_prefix_is_not_enough():
    tested = Backtest(0.6, 0.02, (prefix(0.1, 0.001), prefix(0.3, 0.05), prefix(0.5, -0.02, is_bounded=False), prefix(0.7, 0.01)))
    assert tested.enough.share == 0.5
    assert tested.bounded.share == 0.7
    assert Backtest(0.6, 0.02, (prefix(0.1, 0.0), prefix(0.5, -0.03))).enough is None
    assert Backtest(0.6, 0.02, (prefix(0.1, 0.0), prefix(0.5, None))).enough is None


def test_f4_a_collapse_is_predicted_by_no_prefix():
    rewards = [0.21, 0.24, 0.30, 0.39, 0.48, 0.55, 0.59, 0.60, 0.41, 0.12, 0.05, 0.03]
    tested = backtest(fit(Curve.of("F4", STEPS, [1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224], rewards)))
    assert tested.enough is None


def test_the_level_of_a_flat_curve_bounds_no_ceiling():
    rng = np.random.default_rng(0)
    assert backtest(fit(Curve.of("flat", STEPS, np.arange(1.0, 41.0), 0.5 + 0.01 * rng.normal(size=40)))).bounded is None


def test_two_points_and_a_fit_made_by_hand():
    lone = backtest(fit(Curve.of("lone", STEPS, [95.0, 100.0], [0.3, 0.4])))
    assert (lone.end, lone.prefixes, lone.enough, lone.bounded) == (None, (), None, None)
    with pytest.raises(UsageError, match=r"it is not known how this was fitted; fit it with scalerl.fit"):
        backtest(replace(fit(Curve.of("lone", STEPS, [95.0, 100.0], [0.3, 0.4])), refit=None))
