"""The levels' closed forms against dense sums, and draws of A against the density they come from."""

import numpy as np
import pytest
from scipy.special import expit

from scalerl.core.units import STEPS
from scalerl.curves.levels import Nodes, Observed
from scalerl.curves.points import Points
from scalerl.curves.regimes import Course
from scalerl.curves.sequence import evenly_spread
from scalerl.records.curve import Curve

COMPUTE = np.geomspace(1.0, 100.0, 14)
PAIRS = np.arange(4)
"""One course with each correlation."""


def levels_of(reward, *, C_mid, given_R0=None, c=None):
    """The levels of one sigmoid with B = 2, after an early phase of scale c if there is one."""
    S = expit(2.0 * (np.log(COMPUTE) - np.log(C_mid)))[np.newaxis]
    E = np.ones_like(S) if c is None else 1.0 - np.exp(-COMPUTE / c)[np.newaxis]
    points = Points.of(Curve.of("levels", STEPS, COMPUTE, reward), R0=given_R0)
    observed = Observed.of(points, given_R0=given_R0, has_early_phase=c is not None)
    return observed.levels(Course(S, E, has_early_phase=c is not None)).pairs(PAIRS)


def rewards(R0, A, C_mid, *, noise=0.01):
    return R0 + (A - R0) * expit(2.0 * np.log(COMPUTE / C_mid)) + noise * np.cos(3.0 * np.arange(COMPUTE.size))


CASES = {
    "inside": levels_of(rewards(0.2, 0.7, 10.0), C_mid=10.0),
    "R0 given": levels_of(rewards(0.2, 0.7, 10.0), C_mid=10.0, given_R0=0.2),
    "start at the floor": levels_of(rewards(0.0, 0.7, 10.0), C_mid=20.0),
    "A beyond 1": levels_of(rewards(0.2, 0.99, 10.0), C_mid=30.0),
    "no climb": levels_of(rewards(0.5, 0.5, 10.0), C_mid=10.0),
    "A not bounded": levels_of(rewards(0.2, 0.6, 300.0), C_mid=1000.0),
    "early phase": levels_of(rewards(0.2, 0.7, 30.0), C_mid=30.0, c=2.0),
    "early phase, R0 given": levels_of(rewards(0.2, 0.7, 30.0), C_mid=30.0, c=2.0, given_R0=0.1),
}


def quantiles(A, share):
    """A's 5, 50 and 95 % quantiles under shares at ordered A."""
    return np.interp([0.05, 0.5, 0.95], (np.cumsum(share) - 0.5 * share) / share.sum(), A)


@pytest.mark.parametrize("levels", CASES.values(), ids=CASES)
def test_five_nodes_hold_the_mass_of_a_dense_sum(levels):
    few, dense = levels.nodes(5), levels.nodes(4_000)
    assert np.exp(few.log_share).sum(axis=0) == pytest.approx(np.exp(dense.log_share).sum(axis=0), rel=0.12)


@pytest.mark.parametrize("levels", CASES.values(), ids=CASES)
def test_draws_from_five_nodes_have_the_quantiles_of_a_dense_sum(levels):
    few, dense = levels.nodes(5), levels.nodes(4_000)
    share = np.exp(few.log_share[:, 0])
    at, uniform = evenly_spread(2, 20_000)
    node = np.searchsorted(np.cumsum(share), at * share.sum())
    found = np.quantile(few.within(node * PAIRS.size, uniform), [0.05, 0.5, 0.95])
    expected = quantiles(dense.A[:, 0], np.exp(dense.log_share[:, 0]))
    assert found == pytest.approx(expected, abs=0.05 * (expected[2] - expected[0]))


@pytest.mark.parametrize("levels", CASES.values(), ids=CASES)
def test_the_least_squares_lie_inside_the_triangle_and_no_grid_point_is_better(levels):
    squares, start, A = levels.least_squares()
    floor, fixed = levels.observed.floor, levels.observed.fixed_start
    assert ((floor <= start) & (start <= A) & (A <= 1.0)).all()
    for one in np.linspace(floor, 1.0, 200):
        for other in [fixed] if fixed is not None else np.linspace(floor, one, 50):
            assert (levels.squares(np.full(4, other), np.full(4, one)) >= squares * (1.0 - 1e-9)).all()


def test_nodes_far_apart_keep_the_width_of_a_normal():
    A = np.linspace(-3.0, 3.0, 6)[:, np.newaxis]
    nodes = Nodes.of(A, np.array([1.2]), -0.5 * A**2)
    at, uniform = evenly_spread(2, 50_000)
    share = np.exp(nodes.log_share[:, 0])
    drawn = nodes.within(np.searchsorted(np.cumsum(share), at * share.sum()), uniform)
    # Even draws within each node would add 1.2^2 / 12 = .12 to the variance.
    assert drawn.std() == pytest.approx(1.0, abs=0.015)
