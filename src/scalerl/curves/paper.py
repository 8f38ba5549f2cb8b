"""The procedure of arXiv 2510.13786 (appendix A), for comparison: a grid search by least squares, without intervals.

    A        .450, .455 ... .800
    C_mid    linspace(100, 4000, 100) and linspace(4000, 40000, 100) GPU-hours
    B        at least squares for each pair
    R0       known
    dropped  points under 1,500 GPU-hours, unless a window is given

The paper writes 100 linear values "in [100, 40000]" for C_mid; the values that it prints lie on the union above. It finds
B by curve_fit; here the same one-dimensional optimum is found exactly: on a dense grid of B for every pair, then by
bounded search for the best pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from scalerl.core.errors import UsageError
from scalerl.core.units import DEVICE_HOURS, counted
from scalerl.curves.result import Band, Estimate, Fit, LawFit, Status, aicc
from scalerl.curves.selection import Selection
from scalerl.records.curve import Curve, FloatArray

LEAST_GPU_HOURS = 1500.0
"""About one epoch: the paper leaves the points before it out."""

_A_GRID = np.arange(0.450, 0.8001, 0.005)
_C_MID_GPU_HOURS = np.union1d(np.linspace(100.0, 4000.0, 100), np.linspace(4000.0, 40000.0, 100))
_B_GRID = np.exp(np.linspace(np.log(0.1), np.log(12.0), 240))
_NUM_POLISHED = 40
"""Pairs of (A, C_mid) whose B is searched further: the dense grid of B ranks the others surely behind."""
_GPU_HOURS_OF_A_RUN = 16_000.0
"""Length of the paper's usual run: on other axes, the grid of C_mid stands to the last point as it does to this."""
_LEAST_POINTS = 4


def fit_paper(selection: Selection, blank: Fit) -> Fit:
    """`blank` with the published least-squares optimum; its low and high repeat the value, for want of intervals.

    Raises:
        UsageError: R0 is not known: the published procedure does not fit it.
    """
    R0 = _known_R0(selection)
    early = LEAST_GPU_HOURS if selection.curve.axis == DEVICE_HOURS and not selection.is_windowed else 0.0
    curve = selection.after(early).positive()
    warnings = [*blank.warnings, "The published procedure gives no intervals: low and high repeat the value."]
    if dropped := int(np.count_nonzero(selection.curve.compute > 0.0)) - len(curve):
        warnings.append(f"{counted(dropped, 'point')} up to {selection.amount(early)} left out, as published.")
    if np.unique(curve.compute).size < _LEAST_POINTS:
        span = (LEAST_GPU_HOURS if early else blank.window[0], blank.window[1])
        sentence = f"{counted(len(curve), 'point')}: too few for A, B and C_mid."
        return replace(blank, window=span, status=Status.TOO_FEW_POINTS, warnings=(*warnings, sentence))

    C_mid_grid = _C_MID_GPU_HOURS
    if curve.axis != DEVICE_HOURS:
        C_mid_grid = C_mid_grid * (curve.compute[-1] / _GPU_HOURS_OF_A_RUN)
        warnings.append("The published grid of C_mid is in GPU-hours: it was scaled to the last point, and no early points were dropped.")
    low, high = curve.bounds
    optimum = _search(curve, R0, C_mid_grid)
    is_bounded = bool(_A_GRID[0] < optimum.A < _A_GRID[-1])
    doubts = () if is_bounded else (f"A lies at the end of the published grid, {optimum.A:g}: it is not bounded by these points.",)
    estimates = {"R0": R0, "A": low + (high - low) * optimum.A, "B": optimum.B, "C_mid": optimum.C_mid}
    best = LawFit(
        law="paper",
        parameters={
            "R0": Estimate(R0, R0, R0, source=selection.R0_source),
            "A": Estimate(estimates["A"] if is_bounded else None, estimates["A"], estimates["A"], identified=is_bounded),
            "B": Estimate(optimum.B, optimum.B, optimum.B, unit=""),
            "C_mid": Estimate(optimum.C_mid, optimum.C_mid, optimum.C_mid, unit="compute"),
        },
        rmse=(high - low) * float(np.sqrt(optimum.squares / len(curve))),
        aicc=aicc(optimum.squares, num_points=len(curve), num_free=3),
        solve=partial(dict, estimates),
        predict=partial(_band, estimates),
    )
    span = (float(curve.compute[0]), float(curve.compute[-1]))
    status = Status.OK if is_bounded else Status.NOT_IDENTIFIED
    return replace(blank, window=span, status=status, best=best, warnings=tuple(warnings), doubts=doubts)


@dataclass(frozen=True, slots=True)
class _Optimum:
    squares: float
    A: float
    """Between the bounds of the reward, 0 .. 1."""
    B: float
    C_mid: float


def _search(curve: Curve, R0: float, C_mid_grid: FloatArray) -> _Optimum:
    """The least sum of squares over the grids of A and C_mid, B free."""
    low, high = curve.bounds
    gain = (curve.reward - R0) / (high - low)
    gains = _A_GRID - (R0 - low) / (high - low)
    log_compute = np.log(curve.compute)

    def squares(A_gain: FloatArray | float, B: FloatArray, C_mid: float) -> FloatArray:
        """Sum of squares, (b, a) for B (b, 1) and the gains A - R0 (a,)."""
        S = expit(B * (log_compute - np.log(C_mid)))
        total: FloatArray = gain @ gain - 2.0 * A_gain * (S @ gain)[:, np.newaxis] + A_gain**2 * (S * S).sum(axis=1)[:, np.newaxis]
        return total

    coarse = np.array([squares(gains, _B_GRID[:, np.newaxis], C_mid) for C_mid in C_mid_grid])
    at_best_B = coarse.min(axis=1)
    candidates = []
    for flat in np.argsort(at_best_B, axis=None, kind="stable")[:_NUM_POLISHED]:
        row, column = np.unravel_index(flat, at_best_B.shape)
        nearest = int(coarse[row, :, column].argmin())
        around = _B_GRID[max(nearest - 1, 0)], _B_GRID[min(nearest + 1, _B_GRID.size - 1)]
        C_mid, A_gain = float(C_mid_grid[row]), float(gains[column])
        found = minimize_scalar(
            lambda B, A_gain=A_gain, C_mid=C_mid: squares(A_gain, np.array([[B]]), C_mid).item(), bounds=around, method="bounded"
        )
        candidates.append(_Optimum(max(float(found.fun), 0.0), float(_A_GRID[column]), float(found.x), C_mid))
    return min(candidates, key=lambda optimum: optimum.squares)


def _known_R0(selection: Selection) -> float:
    if selection.R0 is not None:
        return selection.R0
    at_zero = selection.curve.compute == 0.0
    if selection.R0_source != "measured" or not at_zero.any():
        raise UsageError(
            "the published procedure needs to know R0", where=selection.curve.name, remedy="give --r0 VALUE or a point at zero compute"
        )
    return float(selection.curve.reward[at_zero].mean())


def _band(estimates: Mapping[str, float], compute: FloatArray) -> Band:
    with np.errstate(divide="ignore"):
        S = expit(estimates["B"] * np.log(compute / estimates["C_mid"]))
    mean = estimates["R0"] + (estimates["A"] - estimates["R0"]) * S
    return Band(compute, mean, mean, mean)
