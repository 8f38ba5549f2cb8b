"""Recipes side by side: which ends higher, by how much, where their curves cross, and which climbs faster where they end alike.

    comparison = compare([Arm("CISPO", cispo_fits), Arm("DAPO", dapo_fits)])
    print(*comparison.arms, *comparison.pairs, sep="\\n")

Arms (`curves/arms.py`) are ranked by their ceilings, those without one last, and the first is set against every other.
The rule of arXiv 2510.13786: ceilings within .02 of each other are a tie; both are then fitted with A held at their mean,
and the larger B is the more efficient recipe.

No draw of one arm belongs to one of another. Probabilities of ceilings are taken over all pairs of draws; elsewhere, a
fixed order pairs them as evenly as if they were independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalerl.core.errors import UsageError
from scalerl.curves.arms import Arm
from scalerl.curves.decisions import MARGIN, interval
from scalerl.curves.result import Estimate
from scalerl.curves.sequence import shuffled
from scalerl.records.curve import FloatArray

_OUTLOOK = 2.0
"""Crossings are looked for up to this multiple of the last point unless a range is given."""
_LEAST_LEAD = 0.005
"""Curves cross where one has led by this share of the reward's range and the other comes to lead by as much."""
_GRID = 160


@dataclass(frozen=True, slots=True)
class Standing:
    """An arm in the ranking."""

    name: str
    num_runs: int
    """Runs that say where more compute leads."""
    left_out: tuple[str, ...]
    """The others, each with its status."""
    A: Estimate | None = None
    """The recipe's ceiling; None where no run has one, without a value where it is not bounded."""
    spread: Estimate | None = None
    """Standard deviation of the ceilings of its seeds; by its prior alone with one run."""
    highest: float | None = None
    """Probability that its ceiling is the highest of all arms."""

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl compare --json`."""
        return {
            "name": self.name,
            "runs": self.num_runs,
            "left_out": list(self.left_out),
            "A": None if self.A is None else self.A.to_dict(),
            "spread": None if self.spread is None else self.spread.to_dict(),
            "highest": self.highest,
        }


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where the mean curves of two arms change places for the last time inside a range of compute."""

    within: tuple[float, float]
    probability: float
    """That they do in there at all."""
    compute: Estimate | None
    """Where, if they do; None where they surely do not."""
    ahead: float
    """Probability that the first arm leads at the end of the range."""

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl compare --json`."""
        return {
            "within": list(self.within),
            "probability": self.probability,
            "compute": None if self.compute is None else self.compute.to_dict(),
            "ahead": self.ahead,
        }


@dataclass(frozen=True, slots=True)
class Tie:
    """Two arms whose ceilings lie within the margin, fitted again with one A."""

    A: float
    """The mean of both ceilings."""
    B: tuple[Estimate, Estimate]
    faster: float
    """Probability that the first arm has the larger B."""

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl compare --json`."""
        return {"A": self.A, "B": [B.to_dict() for B in self.B], "faster": self.faster}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two arms with a ceiling, the first and the second of `names`."""

    names: tuple[str, str]
    higher: float
    """Probability that the first arm's ceiling is the higher one."""
    difference: Estimate
    """Of the ceilings, first minus second; without a value where one of them is not bounded."""
    crossing: Crossing | None
    """None where the arms count compute on different axes."""
    tie: Tie | None
    """None where the ceilings differ by more than the margin, are not both bounded, or a law has no B."""

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl compare --json`."""
        return {
            "names": list(self.names),
            "higher": self.higher,
            "difference": self.difference.to_dict(),
            "crossing": None if self.crossing is None else self.crossing.to_dict(),
            "tie": None if self.tie is None else self.tie.to_dict(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Arms by falling ceiling, and the first of them against every other."""

    members: tuple[Arm, ...]
    """The arms themselves, in the order of `arms`."""
    domain: str
    """What they were evaluated on, where the logs have several such things."""
    level: float
    margin: float
    """Ceilings this close are a tie, in the unit of the reward."""
    arms: tuple[Standing, ...]
    pairs: tuple[Pair, ...]

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl compare --json`."""
        return {
            "domain": self.domain,
            "margin": self.margin,
            "arms": [arm.to_dict() for arm in self.arms],
            "pairs": [pair.to_dict() for pair in self.pairs],
        }


def compare(arms: Sequence[Arm], *, within: tuple[float, float] | None = None, domain: str = "") -> Comparison:
    """Rank `arms` and set the first against every other.

    Args:
        arms: two and more recipes, evaluated on the same thing, or one of several runs.
        within: the range of compute in which crossings are looked for: from the first common point to twice the last by default.
        domain: what they were evaluated on, for people.

    Raises:
        UsageError: there are fewer than two runs, two arms have one name, they have no posterior to compare, their rewards have
            different bounds, or `within` is no range.
    """
    _check(arms, within)
    low, high = arms[0].bounds
    level = arms[0].fits[0].level
    ranked = sorted((arm for arm in arms if arm.answered), key=_median, reverse=True)
    unranked = [arm for arm in arms if not arm.answered]
    highest = _chances_of_the_highest([arm.A for arm in ranked])
    standings = [_standing(arm, level=level, highest=chance) for arm, chance in zip(ranked, highest, strict=True)]
    blank = [Standing(arm.name, 0, _left_out(arm)) for arm in unranked]
    margin = MARGIN * (high - low)
    pairs = tuple(_pair(ranked[0], other, within=within, level=level, margin=margin) for other in ranked[1:])
    return Comparison((*ranked, *unranked), domain, level, margin, (*standings, *blank), pairs)


def _check(arms: Sequence[Arm], within: tuple[float, float] | None) -> None:
    names = [arm.name for arm in arms]
    where = ", ".join(names)
    if sum(len(arm.fits) for arm in arms) < 2:
        raise UsageError("one run alone has nothing to be compared with", where=where or None, remedy="give two and more")
    if len(set(names)) < len(names):
        raise UsageError("two recipes have one name", where=where, remedy="name them apart")
    if len({arm.bounds for arm in arms}) > 1:
        remedy = "bring them to one unit, such as percentages to fractions; where they are in one, give all logs one --bounds LO:HI"
        raise UsageError("their rewards have different bounds", where=where, remedy=remedy)
    if all(fit.best is not None and fit.best.sample is None for arm in arms for fit in arm.fits):
        raise UsageError("the published procedure has no intervals to compare by", where="--law paper", remedy="leave it out")
    if within is not None and not 0.0 < within[0] < within[1] < np.inf:
        raise UsageError("no crossing lies in an empty range", where=where, remedy="give the smaller amount of compute first, above 0")


def _median(arm: Arm) -> float:
    """The ceiling of an arm as `interval` tells it, bounded or not."""
    return float(np.quantile(arm.A, 0.5, method="inverted_cdf"))


def _standing(arm: Arm, *, level: float, highest: float) -> Standing:
    return Standing(
        name=arm.name,
        num_runs=len(arm.answered),
        left_out=_left_out(arm),
        A=interval(arm.A, level=level, identified=arm.is_bounded),
        spread=interval(arm.spread, level=level, identified=len(arm.answered) > 1),
        highest=highest,
    )


def _left_out(arm: Arm) -> tuple[str, ...]:
    return tuple(f"{fit.curve.name} ({fit.status})" for fit in arm.fits if fit not in arm.answered)


def _chances_of_the_highest(ceilings: Sequence[FloatArray]) -> list[float]:
    """For each arm, the probability that its ceiling exceeds all others, over all combinations of draws."""
    ordered = [np.sort(A) for A in ceilings]
    below = [[_share_below(others, A) for others in ordered] for A in ceilings]
    return [float(np.prod([share for index, share in enumerate(row) if index != own], axis=0).mean()) for own, row in enumerate(below)]


def _share_below(ordered: FloatArray, values: FloatArray) -> FloatArray:
    """(n,) the share of `ordered` that lies below each of `values`, equals counted by half."""
    share: FloatArray = 0.5 * (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / ordered.size
    return share


def _pair(first: Arm, second: Arm, *, within: tuple[float, float] | None, level: float, margin: float) -> Pair:
    order = shuffled(first.A.size)
    bounded = first.is_bounded and second.is_bounded
    return Pair(
        names=(first.name, second.name),
        higher=float(_share_below(np.sort(second.A), first.A).mean()),
        difference=interval(first.A - second.A[order], level=level, identified=bounded),
        crossing=_crossing(first, second, within or _usual_range(first, second), level=level) if first.axis == second.axis else None,
        tie=_tie(first, second, level=level, margin=margin) if bounded else None,
    )


def _usual_range(first: Arm, second: Arm) -> tuple[float, float]:
    """From the first compute that both have evaluated to twice the last of either."""
    seen = [fit.fitted.compute[fit.fitted.compute > 0.0] for arm in (first, second) for fit in arm.answered]
    return float(max(compute[0] for compute in seen)), _OUTLOOK * float(max(compute[-1] for compute in seen))


def _crossing(first: Arm, second: Arm, within: tuple[float, float], *, level: float) -> Crossing:
    log_compute = np.linspace(math.log(within[0]), math.log(within[1]), _GRID)
    lead = first.mean(np.exp(log_compute)) - second.mean(np.exp(log_compute))[shuffled(first.A.size)]
    low, high = first.bounds
    least = _LEAST_LEAD * (high - low)
    # Seen from whoever leads at the end: behind at first, ahead from the last crossing on.
    lead_at_end = np.where(lead[:, -1:] >= 0.0, lead, -lead)
    behind = lead_at_end < 0.0
    last = _GRID - 1 - behind[:, ::-1].argmax(axis=1)
    crosses = (lead_at_end.min(axis=1) <= -least) & (lead_at_end.max(axis=1) >= least)
    before, last = lead_at_end[crosses], last[crosses]
    rows = np.arange(last.size)
    part = before[rows, last] / (before[rows, last] - before[rows, last + 1])
    places = np.exp(log_compute[last] + part * (log_compute[1] - log_compute[0]))
    return Crossing(
        within=within,
        probability=float(crosses.mean()),
        compute=interval(places, level=level, unit="compute") if places.size else None,
        ahead=float(np.mean(lead[:, -1] > 0.0)),
    )


def _tie(first: Arm, second: Arm, *, level: float, margin: float) -> Tie | None:
    ceilings = [_median(arm) for arm in (first, second)]
    if abs(ceilings[0] - ceilings[1]) > margin:
        return None
    A = 0.5 * sum(ceilings)
    one, other = first.B_given(A), second.B_given(A)
    if one is None or other is None:
        return None
    return Tie(
        A=A,
        B=(interval(one, level=level, unit=""), interval(other, level=level, unit="")),
        faster=float(_share_below(np.sort(other), one).mean()),
    )
