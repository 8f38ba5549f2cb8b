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
    found = np.quantile(posterior(Sigmoid(early_phase=0.0), Points.of(curve, R0=R0)).A, [0.05, 0.5, 0.95])
    assert found == pytest.approx(quantiles_by_brute_force(R0_grid), abs=0.006)


EARLY = Curve.of("early", STEPS, [0.0, 1.0, 3.0, 8.0, 20.0, 50.0, 120.0], [0.12, 0.24, 0.33, 0.36, 0.42, 0.50, 0.57])


def centres(low, high, number):
    edges = np.linspace(low, high, number + 1)
    return 0.5 * (edges[1:] + edges[:-1])


def early_phase_by_brute_force(curve, R0):
    """A's 5, 50 and 95 % quantiles under an early phase, and its log evidence over that of the plain law, from dense sums.

    A free R0 ~ normal(.25, .29) on the scale of the noise widens the covariance by w w' / weight, which numpy inverts here.
    """
    n, log_compute = len(curve), np.log(np.maximum(curve.compute, 1e-300))
    log_last, floor = log_compute[-1], R0 or 0.0
    A_grid, start_grid = centres(0.4, 1.0, 80), centres(0.05, 0.6, 160)
    start, A = start_grid[:, np.newaxis], A_grid[np.newaxis]
    prior = np.where((start < A) & (start > floor), 1.0 / (A - floor), 0.0)
    log_C_mid, log_B = centres(-1.0, log_last + np.log(10.0), 44), centres(np.log(0.3), np.log(8.0), 16)
    log_c = centres(-np.log(3.0), log_last - np.log(8.0), 14)
    B_prior = np.exp(-0.5 * ((log_B - np.log(2.0)) / 0.5) ** 2)
    volumes = B_prior.sum() * np.array([log_C_mid.size, sum(np.count_nonzero(log_c < mid - np.log(4.0)) for mid in log_C_mid)])

    def mass(columns, centre, covariance):
        precision, y = np.linalg.inv(covariance), curve.reward - centre
        gram, moment = columns @ precision @ columns.T, columns @ precision @ y
        squares = y @ precision @ y - 2.0 * (moment[0] * start + moment[1] * A)
        squares = squares + gram[0, 0] * start**2 + 2.0 * gram[0, 1] * start * A + gram[1, 1] * A**2
        likelihood = (2.0 * 0.006**2 + squares) ** (-0.5 * (n + 2.0)) * np.exp(-0.5 * np.linalg.slogdet(covariance)[1])
        return (prior * likelihood).sum(axis=0)

    plain, early = np.zeros(A_grid.size), np.zeros(A_grid.size)
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    for rho, weight in zip((0.0, 0.25, 0.5, 0.75), (0.4, 0.25, 0.2, 0.15), strict=True):
        noise = rho**lag / (1.0 - rho**2)
        for mid in log_C_mid:
            for B, B_weight in zip(np.exp(log_B), weight * B_prior, strict=True):
                S = expit(B * (log_compute - mid))
                plain += B_weight * mass(np.stack([1.0 - S, S]), 0.0, noise)
                for c in np.exp(log_c[log_c < mid - np.log(4.0)]):
                    w = np.exp(-curve.compute / c)
                    covariance = noise if R0 is not None else noise + np.outer(w, w) / (0.006 / 0.29) ** 2
                    early += B_weight * mass(np.stack([1.0 - w - S, S]), w * (0.25 if R0 is None else R0), covariance)
    quantiles = np.interp([0.05, 0.5, 0.95], np.cumsum(early) / early.sum(), A_grid + 0.5 * (A_grid[1] - A_grid[0]))
    return quantiles, np.log(early.sum() / volumes[1]) - np.log(plain.sum() / volumes[0])


@pytest.mark.parametrize("R0", [0.12, None])
def test_an_early_phase_agrees_with_brute_force(R0):
    curve = EARLY if R0 is None else EARLY.at(EARLY.compute > 0.0)
    found = posterior(Sigmoid(), Points.of(curve, R0=R0))
    plain, early = found.found
    (part,) = (part for part in found.parts if part.regime.has_early_phase)
    quantiles, log_odds = early_phase_by_brute_force(curve, R0)
    assert np.quantile(part.A, [0.05, 0.5, 0.95]) == pytest.approx(quantiles, abs=0.01)
    if R0 is None:
        # With R0 given the plain law has one level less, which this sum does not know.
        assert early.log_evidence - plain.log_evidence == pytest.approx(log_odds, abs=0.1)


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
