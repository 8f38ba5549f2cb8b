"""What a fit returns: an immutable answer that says what is known, how well, and what is not."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalerl.core.errors import UsageError
from scalerl.core.plain import finite
from scalerl.core.text import printable
from scalerl.core.units import format_number
from scalerl.curves.printout import printout
from scalerl.records.curve import Curve, FloatArray

if TYPE_CHECKING:
    from scalerl.curves.backtest import Backtest
    from scalerl.curves.checks import Collapse
    from scalerl.curves.decisions import Decisions


class Status(StrEnum):
    """The answer in one word, with its meaning in a sentence."""

    OK = "ok", "The ceiling is bounded by the points."
    FLAT = "flat", "No improvement with compute can be told from noise."
    SATURATED = "saturated", "The curve had reached its ceiling before the first points: the ceiling is known, the climb is not."
    NOT_IDENTIFIED = "not_identified", "The ceiling is not bounded above by these points."
    COLLAPSED = "collapsed", "The reward fell from its peak: no ceiling follows from the whole series."
    TOO_FEW_POINTS = "too_few_points", "There are fewer points than a law has freedom."

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        """The member for `word`."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


@dataclass(frozen=True, slots=True)
class Estimate:
    """A parameter: its posterior median and central interval. What is not identified has no value, only an honest range."""

    value: float | None
    low: float
    high: float
    identified: bool = True
    source: str = "fitted"
    """`fitted`, `measured` (at zero compute), `given` (by the user), or `prior` where the points say nothing."""
    unit: Literal["reward", "compute", ""] = "reward"
    """What it is counted in: as the log's rewards, on the curve's axis, or a plain number."""

    def to_dict(self) -> dict[str, Any]:
        """The parameter's entry of `scalerl fit --json`; an infinite bound, which JSON does not know, is None."""
        entry = {"value": self.value, "low": self.low, "high": self.high, "identified": self.identified, "source": self.source}
        return {name: finite(value) for name, value in entry.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """A law's mean reward over an array of compute, with the predictive interval of one new evaluation; arrays of one shape."""

    compute: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class Forecast:
    """The predictive interval of ONE new evaluation at `compute`: what is unknown of the law, and noise."""

    compute: float
    mean: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """The forecast's entry of `scalerl fit --json`."""
        return {"compute": self.compute, "mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """N evenly weighted draws of everything that is unknown of a law, in the curve's units: the quantiles of any function of them
    are its credible limits. No draw of one curve belongs to a draw of another."""

    parameters: Mapping[str, FloatArray]
    """(N,) of each parameter."""
    mean: Callable[[FloatArray], FloatArray] = field(repr=False)
    """(N, k) the law's mean at k amounts of compute."""
    noise: FloatArray
    """(N,) residual of one new evaluation."""


@dataclass(frozen=True, slots=True)
class EarlyPhase:
    """A fast change from R0 to R1 before the climb that the law describes: mean = R0 (1 - E) + R1 (E - S) + A S, E = 1 - exp(-C / c)."""

    probability: float
    R1: Estimate
    c: Estimate
    is_rise: bool
    """Whether R1 lies above R0 more likely than not."""

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl fit --json`."""
        return {"probability": self.probability, "R1": self.R1.to_dict(), "c": self.c.to_dict()}


class Frozen(dict[str, Any]):
    """A mapping that stays as it is; it can be pickled, as a mapping proxy cannot."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the parameters of an answer do not change")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[Frozen], tuple[dict[str, Any]]]:
        return Frozen, (dict(self),)


@dataclass(frozen=True, slots=True, eq=False)
class LawFit:
    """One law fitted to the points of a curve."""

    law: str
    parameters: Mapping[str, Estimate]
    rmse: float
    """Root mean square of the residuals about the posterior mean, in the unit of the reward."""
    aicc: float
    """Small-sample Akaike criterion, lower is better, of the law's best point, after an early phase where that makes it lower;
    points at zero compute that the law leaves out count as explained by a level of their own."""
    solve: Callable[[], Mapping[str, float]] = field(repr=False)
    """Finds `least_squares`."""
    predict: Callable[[FloatArray], Band] = field(repr=False)
    """The predictive band of one new evaluation at each compute."""
    sample: Callable[[], Draws] | None = field(default=None, repr=False)
    """The posterior itself; None for a procedure without one."""
    sample_given_A: Callable[[float], Draws] | None = field(default=None, repr=False)
    """The posterior where A is known, in the unit of the reward: what the points then say of the climb."""
    early_phase: EarlyPhase | None = None
    """What was modelled apart, where anything speaks for it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", Frozen(self.parameters))

    @property
    def least_squares(self) -> Mapping[str, float]:
        """The law's best point: what an ordinary bounded least-squares fit answers, without a word on how well it is known."""
        return self.solve()


def aicc(squares: float, *, num_points: int, num_free: int) -> float:
    """The small-sample Akaike criterion of a least-squares optimum: n log(SSE / n) + 2 k + 2 k (k + 1) / (n - k - 1).

    The noise counts among the k = num_free + 1 unknowns. Infinite where n permits no such k.
    """
    n, k = num_points, num_free + 1
    if n <= k + 1:
        return math.inf
    return n * math.log(max(squares, sys.float_info.min) / n) + 2.0 * k + 2.0 * k * (k + 1.0) / (n - k - 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A curve's answer under one law, with other laws beside it for comparison."""

    curve: Curve
    """The whole curve, points outside the window included."""
    window: tuple[float, float]
    """Least and largest compute that entered the fit."""
    level: float
    """Probability of every interval in here."""
    status: Status
    best: LawFit | None
    """The law asked for; None where the points permit no fit."""
    alternatives: tuple[LawFit, ...] = ()
    """Other laws on the same points."""
    forecasts: tuple[Forecast, ...] = ()
    warnings: tuple[str, ...] = ()
    """What was assumed or left out."""
    doubts: tuple[str, ...] = ()
    """Reasons not to believe the answer as it stands."""
    collapse: Collapse | None = None
    """How the reward fell, where the status says so."""
    refit: Callable[..., Fit] | None = field(default=None, repr=False)
    """Fits again with the same settings, in another `window` and with forecasts `at` other compute."""
    decisions: Decisions | None = None
    """What follows for the targets and the budget that were asked about (`curves/decisions.py`)."""
    backtest: Backtest | None = None
    """What shorter runs would have predicted, where that was asked for (`curves/backtest.py`)."""

    @property
    def parameters(self) -> Mapping[str, Estimate]:
        """The law's parameters by name: A, B, C_mid and R0 for the sigmoid."""
        return self.best.parameters if self.best else {}

    @property
    def fitted(self) -> Curve:
        """The points that entered the fit."""
        return self.curve.window(*self.window)

    def band(self, compute: ArrayLike) -> Band | None:
        """The predictive band of one new evaluation at each of `compute`, of any shape; None where there is no fit.

        Raises:
            UsageError: an amount is negative or not finite.
        """
        grid: NDArray[np.float64] = np.atleast_1d(np.asarray(compute, dtype=np.float64))
        if not (np.isfinite(grid).all() and (grid >= 0.0).all()):
            raise UsageError("a forecast needs a finite amount of compute, 0 or more", where=self.curve.name, remedy="give another amount")
        if self.best is None:
            return None
        band = self.best.predict(grid.ravel())
        return Band(grid, *(column.reshape(grid.shape) for column in (band.mean, band.low, band.high)))

    def forecast(self, compute: float) -> Forecast | None:
        """The predictive interval of one new evaluation at `compute`."""
        band = self.band(compute)
        return None if band is None else Forecast(compute, float(band.mean[0]), float(band.low[0]), float(band.high[0]))

    def to_dict(self) -> dict[str, Any]:
        """The curve's entry of `scalerl fit --json`, in plain numbers; what is infinite or no number is None."""
        low, high = self.curve.bounds
        unknown = {
            "R0": Estimate(None, low, high, identified=False, source="prior"),
            "A": Estimate(None, low, high, identified=False, source="prior"),
            "B": Estimate(None, 0.0, math.inf, identified=False, source="prior", unit=""),
            "C_mid": Estimate(None, 0.0, math.inf, identified=False, source="prior", unit="compute"),
        }
        entry = {
            "name": self.curve.name,
            "points": len(self.fitted),
            "window": list(self.window),
            "status": str(self.status),
            "law": self.best.law if self.best else None,
            **{name: estimate.to_dict() for name, estimate in {**unknown, **self.parameters}.items()},
            "rmse": self.best.rmse if self.best else None,
            "least_squares": dict(self.best.least_squares) if self.best else None,
            "forecasts": [forecast.to_dict() for forecast in self.forecasts],
            "alternatives": [
                {
                    "law": fit.law,
                    "rmse": fit.rmse,
                    "aicc": fit.aicc,
                    "least_squares": dict(fit.least_squares),
                    **{name: value.to_dict() for name, value in fit.parameters.items()},
                }
                for fit in self.alternatives
            ],
            "decisions": None if self.decisions is None else self.decisions.to_dict(),
            "backtest": None if self.backtest is None else self.backtest.to_dict(),
            "warnings": [*self.doubts, *self.warnings],
            "notes": list(self.curve.notes),
        }
        return {name: finite(value) for name, value in entry.items()}

    def __str__(self) -> str:
        return printout(self)

    def __repr__(self) -> str:
        ceiling = self.parameters.get("A")
        known = "" if ceiling is None else f", A within {format_number(ceiling.low)} .. {format_number(ceiling.high)}"
        return f"<Fit of {printable(self.curve.name)}: {self.status}{known}>"
