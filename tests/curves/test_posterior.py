"""The posterior against brute force, and its intervals against the truth of planted curves."""

import numpy as np
import pytest
from scipy.special import expit

from scalerl.core.units import STEPS
from scalerl.curves.laws.constant import Constant
from scalerl.curves.laws.power import Power
from scalerl.curves.laws.sigmoid import Sigmoid
from scalerl.curves.points import Points
from scalerl.curves.posterior import posterior
from scalerl.records.curve import Curve

COMPUTE = np.array([1.0, 2.0, 4.0, 7.0, 12.0, 20.0, 34.0, 55.0])
REWARD = np.array([0.22, 0.23, 0.31, 0.33, 0.44, 0.47, 0.53, 0.52])


def quantiles_by_brute_force(R0_grid):
    """A's 5, 50 and 95 % quantiles from a dense sum over (R0, A, log C_mid, log B) and rho, each written as its density.

    sigma^2 ~ 2 (.006)^2 / chi-square_2 is integrated by hand to a power of the sum of squares.
    """
    n, log_last = COMPUTE.size, np.log(COMPUTE[-1] / COMPUTE[0])
    A_grid = (np.arange(240) + 0.5) / 240
    log_C_mid = -1.0 + (log_last + np.log(10.0) + 1.0) * (np.arange(72) + 0.5) / 72
    log_B = np.log(0.3) + (np.log(8.0) - np.log(0.3)) * (np.arange(48) + 0.5) / 48
    B_prior = np.exp(-0.5 * ((log_B - np.log(2.0)) / 0.5) ** 2)
    start, A = R0_grid[:, np.newaxis], A_grid[np.newaxis]
    prior = np.where(start < A, 1.0 / A if R0_grid.size > 1 else 1.0, 0.0)
    mass = np.zeros(A_grid.size)
    for rho, weight in zip((0.0, 0.25, 0.5, 0.75), (0.4, 0.25, 0.2, 0.15), strict=True):
        lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        precision = np.linalg.inv(rho**lag / (1.0 - rho**2))
        determinant = np.linalg.slogdet(precision)[1]
        for mid in log_C_mid:
            for B, B_weight in zip(np.exp(log_B), B_prior, strict=True):
                S = expit(B * (np.log(COMPUTE) - mid))
                design = np.stack([1.0 - S, S], axis=1)
                gram, moment = design.T @ precision @ design, design.T @ precision @ REWARD
                squares = REWARD @ precision @ REWARD - 2.0 * (moment[0] * start + moment[1] * A)
                squares = squares + gram[0, 0] * start**2 + 2.0 * gram[0, 1] * start * A + gram[1, 1] * A**2
                likelihood = (2.0 * 0.006**2 + squares) ** (-0.5 * (n + 2.0))
                mass += weight * B_weight * np.exp(0.5 * determinant) * (prior * likelihood).sum(axis=0)
    return np.interp([0.05, 0.5, 0.95], np.cumsum(mass) / mass.sum(), (np.arange(240) + 1.0) / 240)


@pytest.mark.parametrize("R0", [0.2, None])
def test_quantiles_of_A_agree_with_brute_force(R0):
    curve = Curve.of("small", STEPS, COMPUTE, REWARD)
    R0_grid = np.array([R0]) if R0 is not None else (np.arange(60) + 0.5) / 60 * 0.45
    found = np.quantile(posterior(Sigmoid(), Points.of(curve, R0=R0)).A, [0.05, 0.5, 0.95])
    assert found == pytest.approx(quantiles_by_brute_force(R0_grid), abs=0.006)


def test_a_level_alone_is_a_student_t():
    # With rho = 0 the constant is the textbook case; correlation only widens it.
    reward = 0.5 + 0.01 * np.array([1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1])
    found = posterior(Constant(), Points.of(Curve.of("level", STEPS, np.arange(1, 13), reward)))
    assert np.median(found.A) == pytest.approx(0.5, abs=1e-4)
    sd = np.sqrt((12 * 0.01**2 + 2 * 0.006**2) / 13 / 12)
    assert 0.9 * sd < found.A.std() < 1.3 * sd


def test_draws_keep_the_constraints():
    found = posterior(Sigmoid(), Points.of(Curve.of("small", STEPS, COMPUTE, REWARD)))
    assert ((found.start >= 0.0) & (found.start <= found.A) & (found.A <= 1.0)).all()


def test_the_true_law_has_the_larger_evidence():
    compute = np.geomspace(1.0, 300.0, 25)
    noise = np.random.default_rng(1).normal(0.0, 0.004, 25)
    saturating = Points.of(Curve.of("sigmoid", STEPS, compute, 0.2 + 0.4 * expit(2.5 * np.log(compute / 20.0)) + noise))
    power = Points.of(Curve.of("power", STEPS, compute, 0.7 - 0.5 * compute**-0.4 + noise))
    assert posterior(Sigmoid(), saturating).log_evidence > posterior(Power(), saturating).log_evidence + 3.0
    assert posterior(Power(), power).log_evidence > posterior(Sigmoid(), power).log_evidence


def planted(rng, *, rho):
    """A curve whose climb is all but over, with AR(1) noise."""
    R0, C_mid = rng.uniform(0.1, 0.4), 10.0
    A, B, n = rng.uniform(R0 + 0.15, 0.9), rng.uniform(1.3, 3.0), int(rng.integers(12, 30))
    compute = np.linspace(1.0, rng.uniform(6.0, 12.0), n) * C_mid * rng.uniform(0.8, 1.0)
    noise = np.zeros(n)
    for i, shock in enumerate(rng.normal(0.0, 0.005, n)):
        noise[i] = rho * noise[i - 1] + shock if i else shock
    reward = R0 + (A - R0) / (1.0 + (C_mid / compute) ** B) + noise
    return Curve.of("planted", STEPS, compute, np.clip(reward, 0.0, 1.0)), R0, A


def test_intervals_of_A_cover_planted_ceilings():
    rng = np.random.default_rng(20)
    covered = 0
    for index in range(80):
        curve, R0, A = planted(rng, rho=(0.0, 0.4)[index % 2])
        low, high = np.quantile(posterior(Sigmoid(), Points.of(curve, R0=R0)).A, [0.05, 0.95])
        covered += low <= A <= high
    # 80 trials of .90: 63 .. 79 holds 99.8 % of the binomial.
    assert 63 <= covered <= 79
