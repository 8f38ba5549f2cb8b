"""Many runs of one recipe: the spread between seeds is in what is said of the recipe."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from scalerl.curves.seeds import SPREAD, pooled

N = 4096
EVEN = norm.ppf((np.arange(N) + 0.5) / N)


def run(A, sd):
    """Draws of a run whose ceiling is known to a normal distribution."""
    return A + sd * EVEN


def interval(draws, level=0.9):
    return np.quantile(draws, [0.5 - level / 2, 0.5, 0.5 + level / 2])


def test_one_exactly_known_run_knows_its_recipe_to_the_papers_margin():
    low, middle, high = interval(pooled([run(0.6, 1e-4)], scale=SPREAD).centre)
    assert middle == pytest.approx(0.6, abs=5e-4)
    assert (low, high) == (pytest.approx(0.58, abs=0.002), pytest.approx(0.62, abs=0.002))


def test_the_posterior_is_that_of_brute_force():
    """Oracle: importance weights of random tau under its prior, the recipe's value in closed form for normal runs."""
    runs = ((0.600, 0.004), (0.615, 0.006), (0.590, 0.002))
    values, sds = np.array(runs).T
    tau = SPREAD * np.abs(student(3).rvs(40_000, random_state=np.random.default_rng(0)))
    precision = 1.0 / (sds**2 + tau[:, np.newaxis] ** 2)
    mean = (precision * values).sum(axis=1) / precision.sum(axis=1)
    sd = precision.sum(axis=1) ** -0.5
    weight = np.exp(0.5 * np.log(precision).sum(axis=1) + np.log(sd) - 0.5 * (precision * (values - mean[:, np.newaxis]) ** 2).sum(axis=1))
    found = pooled([run(*one) for one in runs], scale=SPREAD)
    grid = np.linspace(0.57, 0.64, 500)
    expected = (weight[:, np.newaxis] * norm.cdf((grid - mean[:, np.newaxis]) / sd[:, np.newaxis])).sum(axis=0) / weight.sum()
    assert np.mean(found.centre[:, np.newaxis] <= grid, axis=0) == pytest.approx(expected, abs=0.01)
    order = np.argsort(tau)
    for share in (0.1, 0.5, 0.9):
        oracle = tau[order][np.searchsorted(np.cumsum(weight[order]), share * weight.sum())]
        assert np.quantile(found.spread, share) == pytest.approx(oracle, rel=0.12)


@pytest.mark.parametrize(("num_seeds", "tau", "least"), [(2, 0.008, 0.85), (3, 0.0, 0.85), (3, 0.02, 0.75), (6, 0.03, 0.8)])
def test_the_interval_covers_the_recipes_ceiling_over_planted_seeds(num_seeds, tau, least):
    rng = np.random.default_rng(num_seeds)
    hits = []
    for _ in range(30):
        sds = rng.uniform(0.002, 0.008, num_seeds)
        runs = [run(A + sd * rng.normal(), sd) for A, sd in zip(0.6 + tau * rng.normal(size=num_seeds), sds, strict=True)]
        low, _, high = interval(pooled(runs, scale=SPREAD).centre)
        hits.append(low <= 0.6 <= high)
    assert np.mean(hits) >= least


def test_seeds_that_scatter_widen_the_interval_and_seeds_that_agree_narrow_it():
    agree = pooled([run(A, 0.003) for A in (0.600, 0.602, 0.599)], scale=SPREAD)
    scatter = pooled([run(A, 0.003) for A in (0.56, 0.60, 0.64)], scale=SPREAD)
    alone = pooled([run(0.6, 0.003)], scale=SPREAD)
    width = [np.ptp(interval(one.centre)[[0, 2]]) for one in (agree, alone, scatter)]
    assert width[0] < width[1] < width[2]
    assert np.median(scatter.spread) == pytest.approx(0.04, abs=0.015)


def test_other_seeds_bear_on_a_run_that_is_not_bounded():
    wide = np.linspace(0.5, 1.0, N)
    found = pooled([run(0.600, 0.003), run(0.605, 0.003), wide], scale=SPREAD)
    low, middle, high = interval(found.centre)
    assert (low, high) == (pytest.approx(0.585, abs=0.01), pytest.approx(0.62, abs=0.01))
    assert interval(wide[found.chosen[2]]) == pytest.approx([0.58, middle, 0.63], abs=0.015)


def test_units_do_not_matter_and_nothing_is_drawn_at_random():
    runs = [run(0.6, 0.004), run(0.61, 0.002)]
    once, again = (pooled(runs, scale=SPREAD, bounds=(0.0, 1.0)) for _ in range(2))
    percent = pooled([100.0 * one for one in runs], scale=100.0 * SPREAD, bounds=(0.0, 100.0))
    assert (once.centre == again.centre).all()
    assert percent.centre / 100.0 == pytest.approx(once.centre, abs=1e-9)


def test_no_ceiling_leaves_the_bounds_of_the_reward():
    found = pooled([run(0.999, 1e-4)], scale=SPREAD, bounds=(0.0, 1.0))
    assert found.centre.max() <= 1.0
