"""Boxes that find narrow peaks, and that are as fine as the draws need."""

import numpy as np
import pytest

from scalerl.core.units import STEPS
from scalerl.curves.laws.sigmoid import Sigmoid
from scalerl.curves.points import Points
from scalerl.curves.posterior import posterior
from scalerl.records.curve import Curve


def long_curve(num_points, *, noise, early=0.0):
    """A climb to .65, after a fast rise by `early`."""
    compute = np.linspace(200.0 / num_points, 200.0, num_points)
    reward = 0.25 + 0.4 / (1.0 + (40.0 / compute) ** 1.8) - early * np.exp(-compute / 2.0)
    return Curve.of("long", STEPS, compute, reward + noise * np.random.default_rng(num_points).normal(size=num_points))


@pytest.mark.parametrize(("num_points", "noise", "early"), [(400, 0.001, 0.0), (1600, 0.0002, 0.15), (1600, 0.005, 0.15)])
def test_a_peak_much_narrower_than_the_first_grid_is_found(num_points, noise, early):
    # A first grid under the full likelihood stepped over these peaks and told of .641 with certainty.
    found = posterior(Sigmoid(), Points.of(long_curve(num_points, noise=noise, early=early)))
    low, high = np.quantile(found.A, [0.005, 0.995])
    assert low <= 0.65 <= high
    assert high - low < 0.01


def test_cells_hold_few_draws_each_and_the_whole_prior():
    plain, early = posterior(Sigmoid(), Points.of(long_curve(40, noise=0.005))).found
    for found in (plain, early):
        _, draws = np.unique(found.cell_of, return_counts=True)
        mass = np.exp(found.nodes.log_share - np.logaddexp(plain.log_mass, early.log_mass) + found.regime.log_prior).sum(axis=0)
        of_cell = np.bincount(found.cell_of, weights=mass)
        assert draws.max() <= 4
        assert of_cell.max() < 0.01
        assert np.exp(found.cells.log_prior).sum() == pytest.approx(1.0, abs=0.02)
