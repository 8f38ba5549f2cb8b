"""Fits built by hand, so that these tests know every number and need no estimation."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from scalerl.core.units import DEVICE_HOURS, Axis
from scalerl.curves.result import Band, Estimate, Fit, Forecast, LawFit, Status
from scalerl.records.curve import Curve, FloatArray

A, B, C_MID, R0 = 0.645, 1.7, 10_909.0, 0.40
"""The 100k GPU-hour run printed in arXiv 2510.13786, figure 1."""
HALF_WIDTH = 0.01


@pytest.fixture
def planted() -> ModuleType:
    """This module: its fits and the numbers in them."""
    return sys.modules[__name__]


def sigmoid(compute: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return R0 + (A - R0) / (1.0 + (C_MID / compute) ** B)


def curve(name: str = "scalerl bs2048") -> Curve:
    compute = np.array([0.0, 800.0, *np.linspace(2e3, 98e3, 25)])
    reward = sigmoid(compute) + 0.004 * np.resize([1.0, -1.0, 0.5, -0.5], compute.size)
    return Curve.of(name, DEVICE_HOURS, compute, reward, source="paper.csv", metric="mean@16", notes=("column gpu_hours was chosen",))


def band(mean: FloatArray, compute: FloatArray) -> Band:
    return Band(compute, mean, mean - HALF_WIDTH, mean + HALF_WIDTH)


def sigmoid_law() -> LawFit:
    parameters = {
        "A": Estimate(A, 0.632, 0.661),
        "B": Estimate(B, 1.4, 2.1, unit=""),
        "C_mid": Estimate(C_MID, 9_500.0, 12_600.0, unit="compute"),
        "R0": Estimate(R0, R0, R0, source="measured"),
    }
    return LawFit(
        "sigmoid", parameters, rmse=0.0034, aicc=-130.2, solve=lambda: {"A": 0.612}, predict=lambda compute: band(sigmoid(compute), compute)
    )


def power_law() -> LawFit:
    parameters = {
        "A": Estimate(None, 0.62, 1.0, identified=False),
        "B": Estimate(0.3, 0.05, 0.6, unit=""),
        "R_last": Estimate(0.61, 0.6, 0.62),
    }
    return LawFit(
        "power",
        parameters,
        rmse=0.007,
        aicc=-112.9,
        solve=lambda: {"A": 1.0},
        predict=lambda compute: band(1.0 - 0.39 * (5e4 / compute) ** 0.1, compute),
    )


def constant_law() -> LawFit:
    parameters = {"A": Estimate(0.58, 0.57, 0.59)}
    return LawFit(
        "constant",
        parameters,
        rmse=0.05,
        aicc=-40.0,
        solve=lambda: {"A": 0.58},
        predict=lambda compute: band(np.full_like(compute, 0.58), compute),
    )


def fit(name: str = "scalerl bs2048") -> Fit:
    """A fit on the first half of the compute, with forecasts at the last point and beyond."""
    return Fit(
        curve=curve(name),
        window=(1500.0, 50_000.0),
        level=0.9,
        status=Status.OK,
        best=sigmoid_law(),
        alternatives=(power_law(), constant_law()),
        forecasts=tuple(Forecast(c, m, m - HALF_WIDTH, m + HALF_WIDTH) for c, m in ((98e3, 0.640), (200e3, 0.643))),
        warnings=("The last residuals trend down: the forecast may be too high.",),
    )


def doubted_fit(name: str = "doubted") -> Fit:
    return replace(fit(name), doubts=("The power law explains the points far better (AICc lower by 12).",))


def unbounded_fit(name: str = "32k") -> Fit:
    law = sigmoid_law()
    parameters = {
        "A": Estimate(None, 0.58, 1.0, identified=False),
        "B": Estimate(None, 0.5, 4.0, identified=False, unit=""),
        "C_mid": Estimate(None, 9e3, np.inf, identified=False, unit="compute"),
        "R0": law.parameters["R0"],
    }
    return replace(fit(name), status=Status.NOT_IDENTIFIED, best=replace(law, parameters=parameters), forecasts=())


def unanswered_fit(status: Status, name: str = "bare") -> Fit:
    return Fit(curve=curve(name), window=(1500.0, 50_000.0), level=0.9, status=status, best=None)


def fit_without_intervals() -> Fit:
    """As the published procedure answers: every low and high repeat the value."""
    law = sigmoid_law()
    parameters = {
        name: replace(estimate, low=estimate.value or 0.0, high=estimate.value or 0.0) for name, estimate in law.parameters.items()
    }
    exact = replace(law, law="paper", parameters=parameters, predict=lambda compute: Band(compute, *[sigmoid(compute)] * 3))
    return replace(fit(), best=exact, alternatives=(), forecasts=(Forecast(98e3, 0.640, 0.640, 0.640),))


def fit_on(axis: Axis) -> Fit:
    return replace(fit(), curve=replace(curve(), axis=axis))


def hostile_fit(text: str) -> Fit:
    """A fit whose every name from outside is `text`."""
    named = replace(curve(text), metric=text, source=text, notes=(text,), axis=Axis(text, text))
    return replace(fit(), curve=named, warnings=(text,), doubts=(text,))
