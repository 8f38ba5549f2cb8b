"""What a shorter run would have predicted: the smallest share of the compute whose forecast of the end came true.

    tested = backtest(fit(curve, r0=0.40))
    print(tested.enough, *tested.prefixes, sep="\\n")

The end is what was measured over the last tenth of the compute; every prefix is fitted with the settings of the whole and
judged by its forecast at those very points. One lucky prefix proves nothing, so a prefix is enough where all longer ones
were right as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalerl.core.errors import UsageError
from scalerl.curves.decisions import MARGIN
from scalerl.curves.result import Estimate, Fit, Status
from scalerl.records.curve import Curve, FloatArray

_END = 0.9
"""The end begins at this share of the compute."""
_SHARES = np.linspace(0.05, _END, 18)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The fit of the points up to some compute, and its forecast of the end."""

    compute: float
    """Of the last point that entered."""
    share: float
    """Of the whole run's compute."""
    points: int
    status: Status
    A: Estimate | None
    """None where the points permit no fit."""
    forecast: Estimate | None
    """Of the mean of the end's evaluations: the law's mean, with the interval of one new evaluation."""
    error: float | None
    """Forecast minus what was measured."""

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl fit --backtest --json`."""
        return {
            "compute": self.compute,
            "share": self.share,
            "points": self.points,
            "status": str(self.status),
            "A": None if self.A is None else self.A.to_dict(),
            "forecast": None if self.forecast is None else self.forecast.to_dict(),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Backtest:
    """Prefixes of one curve in order, and from where on they predicted its end."""

    end: float | None
    """Mean reward over the last tenth of the compute; None where nothing comes before it."""
    margin: float
    """An error up to this is none, in the unit of the reward."""
    prefixes: tuple[Prefix, ...]

    @property
    def enough(self) -> Prefix | None:
        """The smallest prefix that predicted the end within the margin, as all longer ones did; None if even the longest did not."""
        smallest = None
        for prefix in reversed(self.prefixes):
            if prefix.error is None or abs(prefix.error) > self.margin:
                break
            smallest = prefix
        return smallest

    @property
    def bounded(self) -> Prefix | None:
        """The smallest prefix from which on the ceiling was bounded by the points; None if it never was."""
        smallest = None
        for prefix in reversed(self.prefixes):
            if prefix.A is None or not prefix.A.identified or prefix.status is Status.FLAT:
                break
            smallest = prefix
        return smallest

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl fit --backtest --json`."""
        return {
            "end": self.end,
            "margin": self.margin,
            "enough": None if self.enough is None else self.enough.to_dict(),
            "bounded": None if self.bounded is None else self.bounded.to_dict(),
            "prefixes": [prefix.to_dict() for prefix in self.prefixes],
        }


def backtest(answer: Fit) -> Backtest:
    """Fit prefixes of the points that entered `answer`, with its settings.

    Raises:
        UsageError: the fit was put together by hand, so that its settings are not known.
    """
    if answer.refit is None:
        raise UsageError("it is not known how this was fitted", where=answer.curve.name, remedy="fit it with scalerl.fit")
    low, high = answer.curve.bounds
    margin, last = MARGIN * (high - low), answer.window[1]
    points = answer.fitted.window(low=np.nextafter(0.0, 1.0))
    cuts = _cuts(points.compute, last)
    if not cuts:
        return Backtest(None, margin, ())
    end = points.window(low=_END * last)
    prefixes = tuple(_prefix(answer.refit(window=(answer.window[0], cut)), end, last=last) for cut in cuts)
    return Backtest(float(end.reward.mean()), margin, prefixes)


def _cuts(compute: FloatArray, last: float) -> list[float]:
    """The last compute before each share of `last`, each once, where a point comes before it: one alone is no window."""
    counts = np.unique(np.searchsorted(compute, _SHARES * last))
    return [float(compute[count - 1]) for count in counts if count and compute[count - 1] > compute[0]]


def _prefix(shorter: Fit, end: Curve, *, last: float) -> Prefix:
    band = shorter.band(end.compute)
    forecast = None if band is None else Estimate(float(band.mean.mean()), float(band.low.mean()), float(band.high.mean()))
    return Prefix(
        compute=shorter.window[1],
        share=shorter.window[1] / last,
        points=len(shorter.fitted),
        status=shorter.status,
        A=shorter.parameters.get("A"),
        forecast=forecast,
        error=None if forecast is None or forecast.value is None else forecast.value - float(end.reward.mean()),
    )
