"""Recipes side by side, against planted truth, closed forms and printed fits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, curve_fit
from scipy.stats import norm

from scalerl.core.errors import UsageError
from scalerl.core.units import FLOPS, STEPS
from scalerl.curves import Status, fit
from scalerl.curves.arms import Arm
from scalerl.curves.comparison import compare
from scalerl.curves.result import Band, Draws, Estimate, Fit, LawFit
from scalerl.curves.seeds import SPREAD
from scalerl.records.curve import Curve

N = 4096
EVEN = norm.ppf((np.arange(N) + 0.5) / N)


def law(compute, *, R0=0.3, A, B, C_mid):
    return R0 + (A - R0) / (1.0 + (C_mid / np.asarray(compute)) ** B)


def planted(name, *, A, B=1.8, C_mid=30.0, last=400.0, n=40, noise=0.0005, axis=STEPS, seed=0, scale=1.0):
    compute = np.linspace(last / n, last, n)
    reward = law(compute, A=A, B=B, C_mid=C_mid) + noise * np.random.default_rng(seed).normal(size=n)
    return fit(Curve.of(name, axis, compute, scale * reward, bounds=(0.0, scale)), r0=scale * 0.3)


def known(name, A, sd, *, is_bounded=True):
    """A fit put together by hand, whose ceiling is normal."""
    ceiling = np.clip(A + sd * EVEN, 0.0, 1.0)
    low, high = np.quantile(ceiling, [0.05, 0.95])
    estimate = Estimate(A if is_bounded else None, float(low), float(high), identified=is_bounded)
    draws = Draws({"R0": np.full(N, 0.3), "A": ceiling}, lambda compute: np.where(compute > 0.0, ceiling[:, None], 0.3), np.zeros(N))
    one = LawFit("sigmoid", {"A": estimate}, 0.0, 0.0, dict, lambda compute: Band(compute, *[compute] * 3), sample=lambda: draws)
    curve = Curve.of(name, STEPS, [1.0, 2.0, 3.0], [0.3, 0.4, A])
    return Fit(curve, (1.0, 3.0), 0.9, Status.OK if is_bounded else Status.NOT_IDENTIFIED, one)


def pair_of(*arms, **options):
    (pair,) = compare(arms, **options).pairs
    return pair


# Ceilings.


@pytest.mark.parametrize(("difference", "sds"), [(0.0, (0.003, 0.003)), (0.02, (0.002, 0.006)), (0.05, (0.01, 0.02))])
def test_one_run_each_leaves_the_spread_between_seeds_to_its_prior(difference, sds):
    """Oracle: Monte Carlo over both runs and the spreads of both recipes."""
    pair = pair_of(Arm("a", (known("a", 0.6 + difference, sds[0]),)), Arm("b", (known("b", 0.6, sds[1]),)))
    rng = np.random.default_rng(0)
    of_run, of_seed = rng.normal(size=(2, 2, 200_000))
    of_seed *= SPREAD * np.abs(rng.standard_t(3, size=of_seed.shape))
    oracle = difference + sds[0] * of_run[0] - sds[1] * of_run[1] + of_seed[0] - of_seed[1]
    sign = 1.0 if pair.names[0] == "a" else -1.0
    assert pair.higher == pytest.approx(np.mean(sign * oracle > 0.0), abs=0.01)
    assert [pair.difference.low, pair.difference.high] == pytest.approx(np.quantile(sign * oracle, [0.05, 0.95]), abs=0.002)


@given(st.lists(st.tuples(st.floats(0.3, 0.8), st.floats(0.001, 0.05)), min_size=2, max_size=4))
@example([(0.5, 0.015625), (0.5, 0.01953125)])  # equal but for rounding: the order is that of the values told
@settings(deadline=None, max_examples=15)
def test_chances_of_the_highest_add_up_and_the_ranking_falls(ceilings):
    arms = [Arm(str(index), (known(str(index), A, sd),)) for index, (A, sd) in enumerate(ceilings)]
    compared = compare(arms)
    assert sum(arm.highest for arm in compared.arms) == pytest.approx(1.0, abs=1e-3)
    values = [arm.A.value for arm in compared.arms]
    # Ceilings that are equal but for their draws come in either order.
    assert values == pytest.approx(sorted(values, reverse=True), abs=1e-5)
    assert all(pair.names[0] == compared.arms[0].name for pair in compared.pairs)


def test_probabilities_come_true_over_planted_pairs():
    rng = np.random.default_rng(1)
    said, came, held = [], [], []
    for _ in range(25):
        truth = {"a": rng.uniform(0.5, 0.7)}
        truth["b"] = truth["a"] + rng.normal(0.0, 0.03)
        runs = {name: A + 0.008 * rng.normal() + 0.004 * rng.normal() for name, A in truth.items()}
        pair = pair_of(*(Arm(name, (known(name, A, 0.004),)) for name, A in runs.items()))
        difference = truth[pair.names[0]] - truth[pair.names[1]]
        said.append(pair.higher)
        came.append(difference > 0.0)
        held.append(pair.difference.low <= difference <= pair.difference.high)
    assert np.mean(came) == pytest.approx(np.mean(said), abs=0.15)
    assert np.mean(held) >= 0.8


def test_a_ceiling_that_is_not_bounded_gives_a_range_and_no_tie(paper):
    half = fit(paper.curve(*paper.run_32k, kind="fit"), r0=0.40, window=(1_500, np.inf))
    usual = fit(paper.curve("fig9a_gen_length", "scalerl_14k"), r0=0.40, window=(1_500, np.inf))
    compared = compare([Arm("32k", (half,)), Arm("14k", (usual,))])
    (pair,) = compared.pairs
    standing = next(arm for arm in compared.arms if arm.name == "32k")
    assert (standing.A.value, standing.A.identified) == (None, False)
    assert (pair.difference.value, pair.tie) == (None, None)
    assert pair.difference.high > 0.2


def test_seeds_that_were_stopped_early_leave_the_ceiling_bounded_by_the_others():
    arm = Arm("a", (known("whole", 0.60, 0.004), known("stopped", 0.75, 0.1, is_bounded=False)))
    first, _ = compare([arm, Arm("b", (known("b", 0.5, 0.004),))]).arms
    assert first.A.identified
    assert first.A.low < 0.60 < first.A.high
    assert first.A.high - first.A.low < 0.06


def test_the_whole_32k_run_ends_higher_and_crosses_late(paper):
    arms = [
        Arm(name, (fit(paper.curve("fig9a_gen_length", series), r0=0.40, window=(1_500, np.inf)),))
        for name, series in (("32k", "scalerl_32k_labelled_34k"), ("14k", "scalerl_14k"))
    ]
    pair = pair_of(*arms)
    assert pair.names == ("32k", "14k")
    assert pair.difference.value == pytest.approx(0.645 - 0.610, abs=0.01)
    assert pair.higher > 0.9
    assert 18e3 < pair.crossing.compute.value < 40e3
    assert pair.tie is None


# Crossings.


def test_a_crossing_is_where_the_laws_cross():
    slow, fast = {"A": 0.65, "B": 1.5, "C_mid": 80.0}, {"A": 0.55, "B": 2.0, "C_mid": 25.0}
    pair = pair_of(Arm("slow", (planted("slow", **slow),)), Arm("fast", (planted("fast", **fast, seed=1),)))
    place = brentq(lambda compute: law(compute, **slow) - law(compute, **fast), 30.0, 400.0)
    crossing = pair.crossing
    assert pair.names == ("slow", "fast")
    assert crossing.within == (10.0, 800.0)
    assert (crossing.probability, crossing.ahead) == (pytest.approx(1.0, abs=0.01), pytest.approx(1.0, abs=0.01))
    assert crossing.compute.value == pytest.approx(place, rel=0.05)
    assert crossing.compute.low < place < crossing.compute.high


def test_curves_that_part_for_good_do_not_cross_and_a_range_limits_the_search():
    high, low = (Arm(name, (planted(name, A=A, seed=seed),)) for seed, (name, A) in enumerate((("high", 0.70), ("low", 0.50))))
    assert pair_of(high, low).crossing.probability < 0.02
    slow = Arm("slow", (planted("slow", A=0.65, B=1.5, C_mid=80.0),))
    fast = Arm("fast", (planted("fast", A=0.55, B=2.0, C_mid=25.0, seed=1),))
    early = pair_of(slow, fast, within=(10.0, 40.0)).crossing
    assert (early.probability, early.ahead) == (pytest.approx(0.0, abs=0.02), pytest.approx(0.0, abs=0.02))


def test_ceilings_compare_across_axes_and_curves_do_not():
    pair = pair_of(Arm("a", (planted("a", A=0.65),)), Arm("b", (planted("b", A=0.55, axis=FLOPS),)))
    assert pair.crossing is None
    assert pair.higher > 0.98


# The paper's rule.


@pytest.mark.parametrize(
    ("figure", "series", "printed"),
    [
        ("fig15a_loo", "loo_prompt_lvl_adv_norm", 1.82),
        ("fig15a_loo", "loo_length_penalty", 1.75),
        ("fig15b_loo", "loo_batch_no_zero_var_filter", 1.69),
        ("fig15b_loo", "loo_ppo_offpolicy_8", 1.89),
        ("fig15c_loo", "scalerl", 2.01),
        ("fig15c_loo", "loo_sample_avg", 1.84),
    ],
)
def test_b_at_one_ceiling_is_the_printed_one_and_that_of_least_squares(paper, figure, series, printed):
    curve = paper.curve(figure, series)
    points = curve.window(1_500)
    arm = Arm(series, (fit(curve, r0=0.40, window=(1_500, np.inf)),))
    (B, _), _ = curve_fit(
        lambda compute, B, C_mid: law(compute, R0=0.40, A=0.605, B=B, C_mid=C_mid), points.compute, points.reward, (2, 2e3)
    )
    low, found, high = np.quantile(arm.B_given(0.605), [0.05, 0.5, 0.95])
    assert found == pytest.approx(B, abs=0.08)
    assert low < printed < high


def test_a_known_ceiling_leaves_the_noise_and_the_start_as_they_were():
    answer = planted("a", A=0.6, noise=0.004)
    free, known_A = answer.best.sample(), answer.best.sample_given_A(0.6)
    assert known_A.parameters["A"] == pytest.approx(np.full(N, 0.6), abs=1e-4)
    assert known_A.noise.std() == pytest.approx(free.noise.std(), rel=0.1)
    assert known_A.mean(np.array([1e9]))[:, 0] == pytest.approx(np.full(N, 0.6), abs=1e-3)
    assert np.ptp(np.quantile(known_A.parameters["B"], [0.05, 0.95])) < np.ptp(np.quantile(free.parameters["B"], [0.05, 0.95]))


def test_ceilings_within_the_margin_are_refitted_with_their_mean():
    fast, slow = {"A": 0.60, "B": 2.6, "C_mid": 30.0}, {"A": 0.61, "B": 1.5, "C_mid": 30.0}
    pair = pair_of(Arm("fast", (planted("fast", **fast, noise=0.002),)), Arm("slow", (planted("slow", **slow, noise=0.002, seed=1),)))
    assert abs(pair.tie.A - 0.605) < 0.003
    own, other = (pair.tie.B[pair.names.index(name)] for name in ("fast", "slow"))
    assert (own.value, other.value) == (pytest.approx(2.6, abs=0.25), pytest.approx(1.5, abs=0.15))
    assert (pair.tie.faster if pair.names[0] == "fast" else 1.0 - pair.tie.faster) > 0.9


def test_ceilings_further_apart_are_no_tie():
    assert pair_of(Arm("a", (planted("a", A=0.65),)), Arm("b", (planted("b", A=0.62),))).tie is None


# Many seeds, and those that do not count.


def test_seeds_narrow_the_difference_and_their_scatter_widens_it():
    def difference(ceilings):
        one = Arm("a", tuple(planted(f"a{seed}", A=A, seed=seed) for seed, A in enumerate(ceilings)))
        other = Arm("b", tuple(planted(f"b{seed}", A=A - 0.05, seed=10 + seed) for seed, A in enumerate(ceilings)))
        pair = pair_of(one, other)
        assert pair.names == ("a", "b")
        return pair.difference.high - pair.difference.low

    alone, agree, scatter = difference([0.65]), difference([0.650, 0.652, 0.648]), difference([0.61, 0.65, 0.69])
    assert agree < 0.7 * alone
    assert scatter > 1.3 * alone


def test_the_mean_curve_of_seeds_is_their_average():
    seeds = [{"A": A, "B": 1.8, "C_mid": C_mid} for A, C_mid in ((0.648, 28.0), (0.652, 32.0), (0.650, 30.0))]
    arm = Arm("a", tuple(planted(str(index), **one, seed=index) for index, one in enumerate(seeds)))
    compute = np.array([15.0, 60.0, 300.0])
    average = np.mean([law(compute, **one) for one in seeds], axis=0)
    assert np.median(arm.mean(compute), axis=0) == pytest.approx(average, abs=0.004)


def test_f4_a_collapsed_run_takes_no_part_and_a_recipe_without_a_ceiling_ranks_last():
    rewards = [0.21, 0.24, 0.30, 0.39, 0.48, 0.55, 0.59, 0.60, 0.41, 0.12, 0.05, 0.03]
    collapsed = fit(Curve.of("F4", STEPS, [1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 192, 224], rewards))
    steady, low = (planted("steady", A=0.6), planted("low", A=0.4, seed=1))
    compared = compare([Arm("falls", (collapsed,)), Arm("mixed", (collapsed, steady)), Arm("low", (low,))])
    assert [arm.name for arm in compared.arms] == ["mixed", "low", "falls"]
    assert (compared.arms[0].num_runs, compared.arms[0].left_out) == (1, ("F4 (collapsed)",))
    assert (compared.arms[2].A, compared.arms[2].highest) == (None, None)
    assert [pair.names for pair in compared.pairs] == [("mixed", "low")]


def test_one_recipe_of_several_runs_says_what_they_say_together():
    compared = compare([Arm("a", tuple(planted(str(seed), A=A, seed=seed) for seed, A in enumerate((0.60, 0.61, 0.59))))])
    (standing,) = compared.arms
    assert standing.A.value == pytest.approx(0.60, abs=0.005)
    assert (standing.highest, compared.pairs) == (1.0, ())


def test_f3_units_do_not_matter():
    pairs = [
        pair_of(
            *(
                Arm(name, (planted(name, A=A, noise=0.004, seed=seed, scale=scale),))
                for seed, (name, A) in enumerate((("a", 0.6), ("b", 0.61)))
            )
        )
        for scale in (1.0, 100.0)
    ]
    assert pairs[0].higher == pytest.approx(pairs[1].higher, abs=1e-9)
    assert 100.0 * pairs[0].difference.high == pytest.approx(pairs[1].difference.high)
    assert pairs[0].tie.faster == pytest.approx(pairs[1].tie.faster, abs=1e-3)


def test_a_recipe_against_itself_is_even_and_a_copy_is_no_second_seed():
    one = planted("a", A=0.6)
    pair = pair_of(Arm("a", (one,)), Arm("b", (replace(one),)))
    assert (pair.higher, pair.tie.faster) == (0.5, 0.5)
    assert pair.difference.low == pytest.approx(-pair.difference.high, abs=1e-3)
    assert pair.crossing.ahead == pytest.approx(0.5, abs=0.01)
    with pytest.raises(UsageError, match=r"^a: a is there twice: its points are those of another run; name every run once"):
        Arm("a", (one, replace(one)))


def test_what_cannot_be_compared_is_one_sentence():
    one, other = planted("a", A=0.6), planted("b", A=0.5)
    cases = {
        "a: one run alone has nothing to be compared with": [Arm("a", (one,))],
        "a, a: two recipes have one name": [Arm("a", (one,)), Arm("a", (other,))],
        "their rewards have different bounds": [Arm("a", (one,)), Arm("b", (planted("b", A=0.5, scale=100.0),))],
        "the published procedure has no intervals": [Arm(name, (fit(one.curve, r0=0.3, law="paper"),)) for name in ("a", "b")],
    }
    for sentence, arms in cases.items():
        with pytest.raises(UsageError, match=sentence):
            compare(arms)
    with pytest.raises(UsageError, match="no crossing lies in an empty range"):
        compare([Arm("a", (one,)), Arm("b", (other,))], within=(5.0, 5.0))
    with pytest.raises(UsageError, match="a: there is no run of it"):
        Arm("a", ())
    with pytest.raises(UsageError, match="its runs do not share one axis of compute"):
        Arm("a", (one, replace(other, curve=replace(other.curve, axis=FLOPS))))
