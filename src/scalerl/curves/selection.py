"""Which points of a curve enter a fit, and what is known of R0: the choices that precede every law."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scalerl.core.errors import UsageError
from scalerl.core.units import counted, format_number
from scalerl.curves.points import noise_sd
from scalerl.records.curve import Curve

_FEWEST_TO_CONTRADICT = 6
"""Points from which on a start level can be contradicted ..."""
_LEAST_CONTRADICTION = 0.02
"""... by first rewards that lie lower by this share of the range, and by five times the noise."""


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The points that were chosen, and the sentences that say how."""

    curve: Curve
    """The chosen points alone."""
    window: tuple[float, float]
    """Least and largest compute among them, a point that only measures R0 aside."""
    is_windowed: bool
    """Whether the user gave the window."""
    R0: float | None
    """The start level that is held fixed, in the unit of the log."""
    R0_source: str
    """`given`, `measured` or `fitted`."""
    warnings: tuple[str, ...]
    doubts: tuple[str, ...] = ()

    @staticmethod
    def of(curve: Curve, *, r0: str | float, window: tuple[float, float] | None) -> Selection:
        """Choose points and start level.

        `r0` is `measured` (by the points at zero compute, which enter wherever the window begins), `free` (of those points
        too), or a number in the unit of the log, which then stands for them.

        Raises:
            UsageError: `r0` is another word or out of bounds, or the window is empty.
        """
        low, high = (0.0, np.inf) if window is None else window
        if not low < high:
            raise UsageError(
                f"the window {low:g} .. {high:g} is empty", where=curve.name, remedy="give the smaller amount of compute first"
            )
        warnings = []
        at_zero = curve.compute == 0.0
        in_window = (curve.compute >= low) & (curve.compute <= high)
        chosen = in_window
        R0, source = None, "fitted"
        if not isinstance(r0, str):
            R0, source = _within_bounds(float(r0), curve), "given"
            if (at_zero & in_window).any():
                warnings.append("R0 was given, so the point at zero compute was left out.")
            chosen = in_window & ~at_zero
        elif r0 == "measured" and at_zero.any():
            source = "measured"
            chosen = in_window | at_zero
        elif r0 == "measured":
            warnings.append(
                "R0 is free, as no point at zero compute measures it: B and C_mid lean on that; evaluate the base model or give --r0 VALUE."
            )
        elif r0 == "free":
            warnings.append("R0 is free: B and C_mid lean on that more than A does.")
            if (at_zero & in_window).any():
                warnings.append("The point at zero compute, which would measure R0, was left out.")
            chosen = in_window & ~at_zero
        else:
            raise UsageError(f"'{r0}' says nothing of R0", where="--r0", remedy="write measured, free or a number")
        if outside := int(np.count_nonzero(~chosen & ~in_window)):
            warnings.append(f"{outside} of {counted(len(curve), 'point')} outside the window left out.")
        inside = curve.compute[chosen & in_window]
        span = (float(inside[0]), float(inside[-1])) if inside.size else (low, low)
        selected = Selection(curve.at(chosen), span, window is not None, R0, source, tuple(warnings))
        if contradiction := selected._contradiction():
            return replace(Selection.of(curve, r0="measured", window=window), doubts=(contradiction,))
        return selected

    def _contradiction(self) -> str | None:
        """A sentence if the start level was given far above the first rewards: no law climbs from there."""
        reward = self.curve.reward
        if self.R0 is None or reward.size < _FEWEST_TO_CONTRADICT:
            return None
        low, high = self.curve.bounds
        begin = float(np.median(reward[: max(reward.size // 4, 3)]))
        if self.R0 - begin <= max(_LEAST_CONTRADICTION * (high - low), 5.0 * noise_sd(reward)):
            return None
        return f"R0 = {self.R0:g} lies above the first rewards, about {format_number(begin)}: it was not used."

    def after(self, compute: float) -> Selection:
        """The points beyond `compute`, with R0 free: what came before it may be another regime, which alone knew R0."""
        return replace(self, curve=self.curve.at(self.curve.compute > compute), R0=None, R0_source="fitted")

    def until(self, compute: float) -> Selection:
        """Without the points beyond `compute`."""
        return replace(self, curve=self.curve.at(self.curve.compute <= compute))

    def positive(self) -> Curve:
        """The points of positive compute."""
        return self.curve.at(self.curve.compute > 0.0)

    @property
    def num_positive(self) -> int:
        """Different amounts of positive compute."""
        return int(np.unique(self.curve.compute[self.curve.compute > 0.0]).size)

    @property
    def num_distinct(self) -> int:
        """Different amounts of compute."""
        return int(np.unique(self.curve.compute).size)

    def amount(self, compute: float) -> str:
        """`compute` as people read it."""
        return f"{format_number(compute)} {self.curve.axis.unit}"


def _within_bounds(r0: float, curve: Curve) -> float:
    low, high = curve.bounds
    if not low <= r0 < high:
        raise UsageError(
            f"R0 = {r0:g} is outside the rewards {low:g} .. {high:g}", where=curve.name, remedy="give R0 in the unit of the log"
        )
    return r0
