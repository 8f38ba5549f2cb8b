"""Targets, budgets and detectable differences, against planted truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl.core.errors import UsageError
from scalerl.core.units import STEPS
from scalerl.curves import Status, fit
from scalerl.curves.decisions import Decisions, Verdict, decided, detectable_difference, interval
from scalerl.curves.seeds import SPREAD, pooled
from scalerl.curves.sequence import shuffled
from scalerl.records.curve import Curve

R0, A, B, C_MID = 0.3, 0.6, 1.8, 30.0


def planted(*, last, n=30, noise=0.0005, scale=1.0, C_mid=C_MID, level=0.9):
    compute = np.linspace(last / n, last, n)
    reward = R0 + (A - R0) / (1.0 + (C_mid / compute) ** B) + noise * np.resize([1.0, -1.0, 0.5, -0.5, 0.3], n)
    return fit(Curve.of("planted", STEPS, compute, scale * reward, bounds=(0.0, scale)), r0=scale * R0, level=level)


def compute_needed(target):
    """The law, solved for C."""
    return C_MID * ((A - R0) / (target - R0) - 1.0) ** (-1.0 / B)


@pytest.mark.parametrize("target", [0.35, 0.45, 0.55, 0.59])
def test_a_target_below_the_ceiling_is_reached_where_the_law_says(target):
    (reach,) = decided(planted(last=300.0), targets=(target,)).decisions.reaches
    assert reach.probability == 1.0
    assert reach.compute.value == pytest.approx(compute_needed(target), rel=0.03)
    assert reach.compute.low <= compute_needed(target) * 1.005
    assert reach.compute.high >= compute_needed(target) * 0.995


@pytest.mark.parametrize("target", [0.0, 0.2, R0])
def test_a_target_up_to_the_start_needs_no_compute(target):
    (reach,) = decided(planted(last=300.0), targets=(target,), budget=1.0).decisions.reaches
    assert (reach.probability, reach.by_budget) == (1.0, 1.0)
    assert (reach.compute.low, reach.compute.value, reach.compute.high) == (0.0, 0.0, 0.0)


def test_f1_where_a_climb_was_over_before_the_first_point_no_compute_is_invented():
    compute = np.concatenate([[0.0], np.linspace(5.0, 300.0, 30)])
    rewards = np.concatenate([[0.1], 0.6 + 0.004 * np.resize([1.0, -1.0, 0.5, -0.5, 0.3], 30)])
    answer = fit(Curve.of("saturated", STEPS, compute, rewards))
    assert answer.status is Status.SATURATED
    below, between, above = decided(answer, targets=(0.05, 0.3, 0.7)).decisions.reaches
    assert (below.compute.value, below.compute.high) == (0.0, 0.0)
    assert (between.probability, between.compute.value, between.compute.low, between.compute.high) == (1.0, None, 0.0, 5.0)
    assert (above.probability, above.compute.low) == (0.0, np.inf)


def test_decisions_are_told_in_plain_text():
    answer = decided(planted(last=300.0), targets=(0.2, 0.45, 0.7), budget=310.0)
    reach, outlook = answer.decisions.reaches[1], answer.decisions.outlook
    start, climb, never, budget, detectable = answer.decisions.lines(answer)
    assert start == "target 0.2: reached with probability >99%, from the start, within the budget with >99%"
    assert climb.startswith(f"target 0.45: reached with probability >99%, compute needed {reach.compute.value:.3g} steps (")
    assert never == "target 0.7: reached with probability <1%, within the budget with <1%"
    assert budget.startswith(f"budget 310 steps: stop; gain {outlook.gain.value:.3g} (")
    assert f"left to the ceiling {outlook.left.value:.3g} (" in budget
    assert detectable == f"least difference of A that one run of each of two recipes would show: {answer.decisions.detectable:.3g}"


def test_decisions_say_where_nothing_is_known_or_nothing_follows():
    open_ended = decided(planted(last=20.0), targets=(0.55,), budget=10.0)
    target, budget = open_ended.decisions.lines(open_ended)
    assert "compute needed not known (" in target
    assert "steps to never)" in target
    assert budget == "budget 10 steps: spent"
    short = decided(fit(Curve.of("short", STEPS, [1.0, 2.0], [0.1, 0.2])), targets=(0.55,))
    assert short.decisions.lines(short) == ["nothing follows for a target or a budget: too_few_points"]


def test_a_target_above_the_ceiling_is_never_reached():
    (reach,) = decided(planted(last=300.0), targets=(0.7,), budget=1e6).decisions.reaches
    assert (reach.probability, reach.by_budget) == (0.0, 0.0)
    assert (reach.compute.value, reach.compute.low, reach.compute.high) == (None, np.inf, np.inf)


def test_a_target_within_the_interval_is_as_likely_as_the_draws_above_it():
    answer = planted(last=100.0, noise=0.004)
    ceiling = answer.parameters["A"]
    reaches = decided(answer, targets=(ceiling.low, ceiling.value, ceiling.high)).decisions.reaches
    assert [reach.probability for reach in reaches] == pytest.approx([0.95, 0.5, 0.05], abs=0.002)


def test_a_ceiling_that_is_not_bounded_gives_no_compute_as_if_known():
    answer = planted(last=25.0, noise=0.004)
    assert answer.status is Status.NOT_IDENTIFIED
    (reach,) = decided(answer, targets=(0.7,), budget=1e3).decisions.reaches
    assert 0.05 < reach.probability < 0.95
    assert (reach.compute.value, reach.compute.high) == (None, np.inf)
    outlook = decided(answer, budget=1e3).decisions.outlook
    assert (outlook.left.value, outlook.left.identified) == (None, False)
    assert decided(answer, budget=1e3).decisions.detectable is None


@pytest.mark.parametrize(
    ("last", "budget", "verdict"),
    [
        (1000.0, 2000.0, Verdict.STOP),
        (100.0, 120.0, Verdict.STOP),
        (40.0, 80.0, Verdict.SCALE),
        (60.0, 600.0, Verdict.CONTINUE),
    ],
)
def test_the_verdict_is_that_of_the_planted_law(last, budget, verdict):
    def law(compute):
        return R0 + (A - R0) / (1.0 + (C_MID / compute) ** B)

    outlook = decided(planted(last=last), budget=budget).decisions.outlook
    assert outlook.verdict is verdict
    assert outlook.gain.value == pytest.approx(law(budget) - law(last), abs=0.003)
    assert outlook.left.value == pytest.approx(A - law(budget), abs=0.006)
    assert outlook.spent == last


def test_points_that_do_not_decide_are_not_made_to():
    outlook = decided(planted(last=100.0, noise=0.01), budget=160.0).decisions.outlook
    assert 0.1 < outlook.worthwhile < 0.9
    assert outlook.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    "rewards",
    [
        [0.754, 0.744, 0.759, 0.742, 0.753, 0.748, 0.757, 0.741, 0.747, 0.755],
        [0.21, 0.24, 0.30, 0.39, 0.48, 0.55, 0.59, 0.60, 0.41, 0.12, 0.05, 0.03],
        [0.3, 0.4],
    ],
    ids=["F1 flat", "F4 collapsed", "too few"],
)
def test_nothing_follows_where_no_forecast_does(rewards):
    answer = fit(Curve.of("bare", STEPS, 2.0 ** np.arange(len(rewards)), rewards))
    assert decided(answer, targets=(0.9,), budget=1e6).decisions == Decisions(1e6)


def test_f3_units_do_not_matter():
    fraction = decided(planted(last=100.0, noise=0.004), targets=(0.58,), budget=500.0).decisions
    percent = decided(planted(last=100.0, noise=0.004, scale=100.0), targets=(58.0,), budget=500.0).decisions
    assert percent.reaches[0].compute.value == pytest.approx(fraction.reaches[0].compute.value, rel=1e-6)
    assert percent.outlook.gain.value == pytest.approx(100.0 * fraction.outlook.gain.value, rel=1e-6)
    assert percent.detectable == pytest.approx(100.0 * fraction.detectable, rel=1e-6)


def test_a_target_out_of_bounds_and_no_budget_are_mistakes_and_a_spent_one_buys_nothing():
    answer = planted(last=100.0)
    with pytest.raises(UsageError, match=r"a reward of 58 is outside 0 .. 1; give targets in the unit of the log"):
        decided(answer, targets=(58.0,))
    with pytest.raises(UsageError, match="0 is no budget; give the compute of the whole run"):
        decided(answer, budget=0.0)
    assert decided(answer, budget=50.0).decisions.outlook is None
    with pytest.raises(UsageError, match="planted: nothing follows from this fit; its status is"):
        detectable_difference(fit(answer.curve, r0=R0, law="paper"))


def test_a_detectable_difference_is_detected_with_the_promised_power():
    """Oracle: recipes that differ by it, a run of each with the noise of seeds and of the fit; shown is what leaves out 0."""
    answer = planted(last=1000.0, noise=0.004)
    least, ceilings = detectable_difference(answer), answer.best.sample().parameters["A"]
    recipe = pooled([ceilings], scale=SPREAD).centre
    half_width = np.ptp(np.quantile(recipe - recipe[shuffled(recipe.size)], [0.05, 0.95])) / 2.0
    rng = np.random.default_rng(0)
    of_seed = SPREAD * np.abs(rng.standard_t(3, size=(2, 20_000))) * rng.normal(size=(2, 20_000))
    of_fit = rng.choice(ceilings - np.median(ceilings), size=(2, 20_000))
    seen = least + np.subtract(*(of_seed + of_fit))
    assert np.mean(seen > half_width) == pytest.approx(0.8, abs=0.05)
    assert detectable_difference(answer, num_seeds=4) == pytest.approx(0.5 * least)


@given(st.lists(st.floats(0.0, 1.0) | st.just(np.inf), min_size=1, max_size=50))
@settings(deadline=None)
def test_an_interval_of_draws_holds_its_median_and_never_invents_a_number(draws):
    estimated = interval(np.array(draws), level=0.9, unit="compute")
    assert estimated.low <= estimated.high
    assert estimated.value is None or (estimated.low <= estimated.value <= estimated.high and estimated.value in draws)
    assert (estimated.value is None) == (sorted(draws)[(len(draws) - 1) // 2] == np.inf)
