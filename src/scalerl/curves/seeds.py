"""Many runs of one recipe, which differ in their seed alone: what the recipe reaches, and how far its runs scatter.

    A_s ~ normal(A, tau),      tau ~ half-Student(3 degrees, .01),      A uniform

A run tells of its own ceiling A_s; the recipe's is A. Three seeds of arXiv 2510.13786 ended within .015, and it takes a
ceiling for known to .02 from one run: under this prior one exactly known run tells of its recipe to +- .02 with a
probability of 90 %, and runs that scatter more widen that. The sum over tau and A is a quadrature over a grid, the runs'
posteriors enter as histograms of their draws, and nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalerl.curves.sequence import evenly_spread
from scalerl.records.curve import FloatArray

SPREAD = 0.01
"""Prior scale of the standard deviation between seeds, as a share of the reward's range."""
_DEGREES = 3.0
"""Of its Student distribution: its tail lets the runs themselves say that they scatter."""
_NUM_SPREADS = 40
_LEAST_SPREAD, _LARGEST_SPREAD = 0.05, 50.0
"""The grid of tau, in prior scales."""
_NUM_BINS = 512
_REACH = 12.0
"""The grid of the centre reaches beyond every draw by this many prior scales."""
_APART = np.abs(np.subtract.outer(np.arange(_NUM_BINS), np.arange(_NUM_BINS)))
"""(b, b) bins from one to another."""
_LEAST = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """What S runs say together of one quantity: N evenly weighted draws."""

    centre: FloatArray
    """(N,) the recipe's own value."""
    spread: FloatArray
    """(N,) standard deviation between seeds."""
    chosen: NDArray[np.intp]
    """(S, N) which draw of each run goes with them: how the other runs bear on it."""


def pooled(runs: Sequence[FloatArray], *, scale: float, bounds: tuple[float, float] = (-np.inf, np.inf)) -> Pooled:
    """The recipe's value of a quantity of which each of `runs` has draws (N,), evenly weighted and all as many.

    `scale` is the prior scale of the standard deviation between seeds, in the unit of the quantity, which lies within `bounds`.
    The prior under which the draws were made is taken for flat.
    """
    number = runs[0].size
    low = max(min(float(run.min()) for run in runs) - _REACH * scale, bounds[0])
    high = min(max(float(run.max()) for run in runs) + _REACH * scale, bounds[1])
    edges = np.linspace(low, high, _NUM_BINS + 1)
    width = edges[1] - edges[0]
    counts = np.array([np.histogram(run, edges)[0] for run in runs], dtype=np.float64)

    taus = scale * np.geomspace(_LEAST_SPREAD, _LARGEST_SPREAD, _NUM_SPREADS)
    # The grid is even in log tau, so that its density there is tau times that of tau.
    log_prior = np.log(taus) - 0.5 * (_DEGREES + 1.0) * np.log1p((taus / scale) ** 2 / _DEGREES)
    densities = _densities(taus / width)
    kernels = np.concatenate([densities[:, :0:-1], densities], axis=1)
    likelihood = [[np.convolve(count, kernel, mode="valid") for count in counts] for kernel in kernels]
    log_likelihood = np.log(np.maximum(likelihood, _LEAST)).sum(axis=1)
    log_share = (log_prior[:, np.newaxis] + log_likelihood).T

    heaped = np.cumsum(np.exp(log_share - log_share.max()))
    position = (np.arange(number) + 0.5) / number * heaped[-1]
    bin_of, tau_of = np.unravel_index(np.searchsorted(heaped, position), log_share.shape)
    in_bin, *in_runs = evenly_spread(1 + len(runs), number)
    near = densities[tau_of[:, np.newaxis], _APART[bin_of]]
    chosen = np.array([_chosen(run, count, near, uniform) for run, count, uniform in zip(runs, counts, in_runs, strict=True)])
    return Pooled(edges[bin_of] + width * in_bin, taus[tau_of], chosen)


def _densities(sds: FloatArray) -> FloatArray:
    """(t, b) normal densities at 0 .. b - 1 bins from the centre for standard deviations (t,) in bins; each sums to 1 over a line."""
    density = np.exp(-0.5 * (np.arange(_NUM_BINS) / sds[:, np.newaxis]) ** 2)
    total = np.maximum(2.0 * density.sum(axis=1, keepdims=True) - 1.0, sds[:, np.newaxis] * np.sqrt(2.0 * np.pi))
    normal: FloatArray = density / total
    return normal


def _chosen(run: FloatArray, counts: FloatArray, near: FloatArray, uniform: FloatArray) -> NDArray[np.intp]:
    """(N,) the draw of `run` at `uniform` (N,) of those that lie `near` (N, b) the centre; its draws are counted in bins (b,)."""
    heaped = np.cumsum(near * counts, axis=1)
    position = uniform * heaped[:, -1]
    bin_of = np.minimum((heaped <= position[:, np.newaxis]).sum(axis=1), _NUM_BINS - 1)
    rows = np.arange(uniform.size)
    above = (heaped[rows, bin_of] - position) / np.maximum(near[rows, bin_of] * counts[bin_of], _LEAST)
    upto = np.cumsum(counts)[bin_of] - np.clip(above, 0.0, 1.0) * counts[bin_of]
    rank = np.clip(upto.astype(np.intp), 0, run.size - 1)
    chosen: NDArray[np.intp] = np.argsort(run, kind="stable")[rank]
    return chosen
