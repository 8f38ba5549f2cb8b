"""Compute is a typed quantity: a number on a named axis, never a bare float.

Ceilings compare across axes; B and C_mid only within one axis and one cluster, so every output names its axis.

    >>> parse_quantity("50k GPU-hours", DEVICE_HOURS)
    Compute(value=50000.0, axis=Axis(name='device_hours', unit='GPU-hours'))
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from scalerl.core.errors import UnitError


@dataclass(frozen=True, slots=True)
class Axis:
    """What compute is counted in: the `name` programs use and the `unit` people read."""

    name: str
    unit: str

    @property
    def label(self) -> str:
        """The axis as a plot's caption, e.g. `compute (GPU-hours)`; a foreign column keeps its own name."""
        return f"compute ({self.unit})" if self.name in AXES else self.name


DEVICE_HOURS = Axis("device_hours", "GPU-hours")
"""All devices of a run times wall time, idle included, as arXiv 2510.13786 counts."""
FLOPS = Axis("flops", "FLOP")
"""Analytic floating-point operations: the axis that does not depend on the machine."""
TOKENS = Axis("tokens", "tokens")
USD = Axis("usd", "USD")
SECONDS = Axis("seconds", "s")
"""Wall clock of a run whose number of devices is unknown."""
ROLLOUTS = Axis("rollouts", "completions")
STEPS = Axis("steps", "steps")

AXES = {axis.name: axis for axis in (DEVICE_HOURS, FLOPS, TOKENS, USD, SECONDS, ROLLOUTS, STEPS)}

_MULTIPLIERS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21}
_UNIT_WORDS = {
    # Hours of wall clock are no device-hours: "48h" on 32 devices would be wrong by 32 times.
    DEVICE_HOURS: dict.fromkeys(("gpuhours", "gpuhour", "gpuh", "devicehours", "devicehour", "deviceh"), 1.0),
    FLOPS: dict.fromkeys(("flops", "flop"), 1.0),
    TOKENS: dict.fromkeys(("tokens", "token", "tok"), 1.0),
    USD: dict.fromkeys(("usd", "$", "dollars", "dollar"), 1.0),
    SECONDS: {
        **dict.fromkeys(("seconds", "second", "sec", "s"), 1.0),
        **dict.fromkeys(("minutes", "minute", "min"), 60.0),
        **dict.fromkeys(("hours", "hour", "h"), 3600.0),
    },
    ROLLOUTS: dict.fromkeys(("completions", "completion", "rollouts", "rollout", "samples", "sample"), 1.0),
    STEPS: dict.fromkeys(("steps", "step"), 1.0),
}
"""By axis: the words for its unit, lower case without spaces and hyphens, and how much of it each stands for."""
_QUANTITY = re.compile(r"\s*(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<word>.*?)\s*")


@dataclass(frozen=True, slots=True)
class Compute:
    """An amount of compute: `value` counted on `axis`."""

    value: float
    axis: Axis

    def __str__(self) -> str:
        return f"{format_number(self.value)} {self.axis.unit}"


def parse_quantity(text: str | float, axis: Axis, *, where: str | None = None) -> Compute:
    """Read an amount of compute on `axis` from a number or from text such as `50k`, `1.5e21 FLOP` or `600 GFLOP`.

    Raises:
        UnitError: the text is no finite, non-negative number, or names the unit of another axis.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise UnitError(f"{text!r} is no amount of compute", where=where, remedy=f"give a number of {axis.unit}")
    if not isinstance(text, str):
        return Compute(_checked(float(text), text, axis, where), axis)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"'{text}' is no number", where=where, remedy=f"write for example '50k {axis.unit}'")
    return Compute(_checked(float(match["number"]) * _multiplier(match["word"], axis, text, where), text, axis, where), axis)


def _multiplier(word: str, axis: Axis, text: str, where: str | None) -> float:
    """The factor that `word` (a metric prefix, a unit, or both) puts before a number on `axis`."""
    if word in _MULTIPLIERS:
        return _MULTIPLIERS[word]
    for factor, unit in ((1.0, word), (_MULTIPLIERS.get(word[0], math.nan), word[1:].strip())):
        amount = 1.0 if unit.casefold() == axis.unit.casefold() else _UNIT_WORDS.get(axis, {}).get(_plain(unit), math.nan)
        if math.isfinite(factor * amount):
            return factor * amount
    raise UnitError(f"'{text}' is not in {axis.unit}", where=where, remedy=f"give the amount in {axis.unit}")


def _plain(unit: str) -> str:
    """A unit word without case, spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", unit.casefold())


def _checked(value: float, text: str | float, axis: Axis, where: str | None) -> float:
    if not math.isfinite(value) or value < 0.0:
        raise UnitError(f"'{text}' is no amount of compute", where=where, remedy=f"give a finite number of {axis.unit}, 0 or more")
    return value


def format_number(value: float) -> str:
    """A number for people: three significant digits, with k / M / G / T / P / E / Z from ten thousand on.

    >>> format_number(50_000), format_number(2542.4), format_number(0.6449)
    ('50k', '2542', '0.645')
    """
    if not math.isfinite(value):
        return str(value)
    magnitude = abs(value)
    for prefix, factor in (("Z", 1e21), ("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if magnitude >= max(factor * 0.9995, 9_999.5):
            return f"{value / factor:.3g}{prefix}" if magnitude < 9.995e23 else f"{value:.3g}"
    return f"{value:.0f}" if magnitude >= 999.5 else f"{value:.3g}"


def counted(number: int, thing: str) -> str:
    """A number of things for people: `1 line`, `2 lines`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
