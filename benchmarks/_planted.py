"""Planted curves: training curves whose ceiling is known because this file put it there.

The design: A ~ U(.3, .95), R0 ~ U(0, A - .1), B ~ logU(.6, 4), last compute / C_mid ~
logU(.5, 20), 12-80 points spaced evenly in C or in log C, noise of standard deviation logU(.002, .02), half of the curves
with AR(1) correlation .5, a third with an early saturating rise. What the design leaves open is settled here: half of the
curves have an evaluation of the base at C = 0; the early rise goes from R0 to R1 = R0 + U(.2, .6) (A - R0) as
1 - exp(-C / c), c ~ logU(.005, .1) of the last compute and under a quarter of C_mid; log spacing begins at 1/30 to 1/300
of the last compute. The unit of compute is drawn too, as none may matter.

A stress row with a slow early phase draws c ~ logU(.1, .33) of the last compute, at most half of C_mid, which is raised for it.

Curve number i is the same in every run and on every machine: `Planted.draw(i)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from scalerl.core.units import DEVICE_HOURS
from scalerl.records.curve import Curve

FloatArray = NDArray[np.float64]
Stress = Literal[
    "early_step", "early_hyperbola", "early_sigmoid", "slow_early_phase", "outliers", "early_dip", "late_decline", "few_trials"
]

FEW_TRIALS = 30
"""Completions behind each point of a small evaluation set such as AIME's."""
DECLINE_FROM = 0.7
"""Share of the last compute at which a late decline begins."""
_EARLY, _SLOW = (0.005, 0.1), (0.1, 0.33)
"""c of an early rise, in units of the last compute: of the design, and of one so slow that the fit's prior of c, up to 1/8, holds few."""

_SEED = 20_251_013
_EARLY_SHAPES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "early_exponential": lambda ratio: -np.expm1(-ratio),
    "early_step": lambda ratio: (ratio > 1.0).astype(np.float64),
    "early_hyperbola": lambda ratio: ratio / (1.0 + ratio),
    "early_sigmoid": lambda ratio: ratio**4 / (1.0 + ratio**4),
}
"""Progress of the early rise against C / c."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What a curve was made from; compute in units of the last one."""

    A: float
    R0: float
    B: float
    C_mid: float
    noise_sd: float
    """Of a point's residual, not of the AR(1) innovation."""
    rho: float
    R1: float | None = None
    """Level of the early rise; None in the single regime."""
    c: float = 0.0

    def mean(self, compute: FloatArray, *, early_shape: str = "early_exponential") -> FloatArray:
        """R0 (1 - E) + R1 (E - S) + A S, with E = 1 in the single regime, where R1 is R0."""
        with np.errstate(divide="ignore"):
            S = expit(self.B * np.log(compute / self.C_mid))
        if self.R1 is None:
            return np.asarray(self.R0 + (self.A - self.R0) * S)
        E = _EARLY_SHAPES[early_shape](compute / self.c)
        return self.R0 * (1.0 - E) + self.R1 * (E - S) + self.A * S


@dataclass(frozen=True, slots=True, eq=False)
class Planted:
    """One curve with its truth."""

    index: int
    curve: Curve
    truth: Truth
    spacing: Literal["linear", "log"]
    has_base: bool
    """Whether the first point lies at C = 0."""

    @property
    def last_per_C_mid(self) -> float:
        """Last compute over C_mid."""
        return 1.0 / self.truth.C_mid

    @property
    def last_progress(self) -> float:
        """S at the last point."""
        return float(expit(-self.truth.B * np.log(self.truth.C_mid)))

    @staticmethod
    def draw(index: int, *, stress: Stress | None = None) -> Planted:
        """Curve number `index` of the design, or of a variant that breaks the law or the noise model."""
        rng = np.random.default_rng([_SEED, index])
        is_slow = stress == "slow_early_phase"
        has_early_rise = rng.random() < 1.0 / 3.0 or is_slow or stress in _EARLY_SHAPES
        truth = _truth(rng, has_early_rise=has_early_rise, is_slow=is_slow)
        spacing: Literal["linear", "log"] = "linear" if rng.random() < 0.5 else "log"
        has_base = bool(rng.random() < 0.5)
        compute = _compute(rng, num_points=int(rng.integers(12, 81)), spacing=spacing, has_base=has_base)
        early_shape = str(stress) if stress in _EARLY_SHAPES else "early_exponential"
        mean = truth.mean(compute, early_shape=early_shape) + _distortion(stress, compute, truth)
        noise = _ar1(rng, compute.size, truth.rho) * truth.noise_sd
        if stress == "outliers":
            noise += _outliers(rng, compute.size) * truth.noise_sd
        reward = np.clip(mean + noise, 0.0, 1.0)
        unit = 10.0 ** rng.uniform(0.0, 6.0)
        trials = None
        if stress == "few_trials":
            reward, trials = rng.binomial(FEW_TRIALS, mean) / FEW_TRIALS, np.full(compute.size, FEW_TRIALS)
        curve = Curve.of(f"planted {index}", DEVICE_HOURS, compute * unit, reward, trials=trials)
        return Planted(index, curve, truth, spacing, has_base)


def _truth(rng: np.random.Generator, *, has_early_rise: bool, is_slow: bool) -> Truth:
    A = rng.uniform(0.3, 0.95)
    R0 = rng.uniform(0.0, A - 0.1)
    truth = Truth(
        A=A,
        R0=R0,
        B=_log_uniform(rng, 0.6, 4.0),
        C_mid=1.0 / _log_uniform(rng, 0.5, 20.0),
        noise_sd=_log_uniform(rng, 0.002, 0.02),
        rho=0.5 if rng.random() < 0.5 else 0.0,
    )
    R1 = R0 + rng.uniform(0.2, 0.6) * (A - R0)
    if is_slow:
        c = _log_uniform(rng, *_SLOW)
        return replace(truth, R1=R1, c=c, C_mid=max(truth.C_mid, 2.0 * c))
    low, high = _EARLY
    c = _log_uniform(rng, low, min(high, 0.25 * truth.C_mid))
    return replace(truth, R1=R1, c=c) if has_early_rise else truth


def _compute(rng: np.random.Generator, *, num_points: int, spacing: str, has_base: bool) -> FloatArray:
    num_positive = num_points - has_base
    first = 1.0 / _log_uniform(rng, 30.0, 300.0)
    positive = np.linspace(1.0 / num_positive, 1.0, num_positive) if spacing == "linear" else np.geomspace(first, 1.0, num_positive)
    return np.concatenate([np.zeros(int(has_base)), positive])


def _distortion(stress: Stress | None, compute: FloatArray, truth: Truth) -> FloatArray | float:
    """What is added to the law's mean."""
    if stress == "early_dip":
        # Down by up to half of the start level, .05 at most, around 2 % of the compute.
        return -min(0.05, 0.5 * truth.R0) * (compute / 0.02) * np.exp(1.0 - compute / 0.02)
    if stress == "late_decline":
        # .03 lost in a straight line.
        return -0.03 * np.clip((compute - DECLINE_FROM) / (1.0 - DECLINE_FROM), 0.0, 1.0)
    return 0.0


def _outliers(rng: np.random.Generator, num_points: int) -> FloatArray:
    """One point in twenty is off by four to ten standard deviations, either way."""
    size = rng.uniform(4.0, 10.0, num_points) * rng.choice([-1.0, 1.0], num_points)
    return np.where(rng.random(num_points) < 0.05, size, 0.0)


def _ar1(rng: np.random.Generator, num_points: int, rho: float) -> FloatArray:
    """Stationary AR(1) of variance 1 over the order of the points."""
    shocks = rng.normal(0.0, 1.0, num_points)
    shocks[1:] *= np.sqrt(1.0 - rho**2)
    for i in range(1, num_points):
        shocks[i] += rho * shocks[i - 1]
    return shocks


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
