"""What follows from one fit: whether and when a reward is reached, what a budget buys, and which differences can be seen at all.

    answer = decided(fit(curve, r0=0.40), targets=(0.62,), budget=100_000)
    print(answer)

All of it is read off the fit's draws: the probability of anything is the share of draws in which it holds, and the compute
that a target needs is infinite in those that never reach it. A reward is "reached" by the law's mean, not by one lucky
evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from scalerl.core.errors import UsageError
from scalerl.core.units import Compute, format_number
from scalerl.curves.result import Draws, Estimate, Fit, Status
from scalerl.curves.seeds import SPREAD, pooled
from scalerl.records.curve import FloatArray

MARGIN = 0.02
"""Rewards closer than this share of their range count as equal: three seeds of arXiv 2510.13786 knew A to that."""
POWER = 0.8
"""Probability with which a detectable difference is detected."""
_CLIMBING = (Status.OK, Status.SATURATED, Status.NOT_IDENTIFIED)
"""Statuses whose law says where more compute leads."""
_LIKELY = 0.9
"""A verdict needs this probability."""
SURE = 0.95
"""From here on, and below its complement, a probability says yes or no; between, a ceiling that is not bounded leaves it to the prior."""
_HORIZON = 1000.0
"""Compute beyond this multiple of the last point is as good as never."""
_NEARLY_NONE = 0.01
"""Compute below this multiple of the first point is not told from none."""
_GRID = 320


class Verdict(StrEnum):
    """What to do with a budget; members say what they mean."""

    STOP = "stop"
    """What is left of the budget very likely buys less than the margin."""
    CONTINUE = "continue"
    """It very likely buys more than the margin."""
    SCALE = "scale"
    """It does, and the climb very likely goes on beyond it: a larger budget pays too."""
    UNDECIDED = "undecided"
    """The points do not say which."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether the law reaches a reward, and when."""

    target: float
    probability: float
    """That it ever does: that A lies above."""
    compute: Estimate
    """Compute needed: `high` is infinite where some draws never get there; without a value where most do not, or where only
    the prior says that they do."""
    by_budget: float | None = None
    """Probability that it does within the budget, where there is one."""

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl fit --json`."""
        return {"target": self.target, "probability": self.probability, "compute": self.compute.to_dict(), "by_budget": self.by_budget}


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the compute between the last point and a budget buys; rewards in the unit of the log."""

    spent: float
    gain: Estimate
    """Of the law's mean, from the last point to the budget."""
    worthwhile: float
    """Probability that the gain exceeds the margin."""
    left: Estimate
    """From the law's mean at the budget to A."""
    goes_on: float
    """Probability that what is left exceeds the margin."""
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """Its entry of `scalerl fit --json`."""
        return {
            "spent": self.spent,
            "gain": self.gain.to_dict(),
            "worthwhile": self.worthwhile,
            "left": self.left.to_dict(),
            "goes_on": self.goes_on,
            "verdict": str(self.verdict),
        }


@dataclass(frozen=True, slots=True)
class Decisions:
    """What follows from a fit for the targets and the budget that were asked about; nothing where it leads nowhere."""

    budget: float | None = None
    """Compute of the whole run, as asked."""
    reaches: tuple[Reach, ...] = ()
    outlook: Outlook | None = None
    """None where no budget was given, or where it is spent."""
    detectable: float | None = None
    """Least difference of A that one run of each of two recipes would show, if both were known as well as this one."""

    def to_dict(self) -> dict[str, Any]:
        """Their entry of `scalerl fit --json`."""
        return {
            "targets": [reach.to_dict() for reach in self.reaches],
            "budget": self.budget,
            "outlook": None if self.outlook is None else self.outlook.to_dict(),
            "detectable_difference": self.detectable,
        }

    def lines(self, answer: Fit) -> list[str]:
        """What `print(answer)` shows of them, for the fit that they follow from."""
        if not leads_on(answer):
            return [f"nothing follows for a target or a budget: {answer.status}"]
        lines = [_reach_line(reach, answer) for reach in self.reaches]
        if self.budget is not None:
            lines.append(f"budget {Compute(self.budget, answer.curve.axis)}: {_outlook_line(self.outlook)}")
        if self.detectable is not None:
            lines.append(f"least difference of A that one run of each of two recipes would show: {format_number(self.detectable)}")
        return lines


def decided(answer: Fit, *, targets: Sequence[float] = (), budget: float | None = None) -> Fit:
    """`answer` with what follows for `targets`, rewards in the log's unit, and for a `budget`: the compute of the whole run.

    Raises:
        UsageError: a target lies outside the rewards' bounds, or the budget is no amount.
    """
    curve, (low, high) = answer.curve, answer.curve.bounds
    for target in targets:
        if not low <= target <= high:
            raise UsageError(
                f"a reward of {target:g} is outside {low:g} .. {high:g}", where=curve.name, remedy="give targets in the unit of the log"
            )
    if budget is not None and not (math.isfinite(budget) and budget > 0.0):
        raise UsageError(f"{budget:g} is no budget", where=curve.name, remedy="give the compute of the whole run, above 0")
    if not leads_on(answer):
        return replace(answer, decisions=Decisions(budget))
    draws = draws_of(answer)
    return replace(
        answer,
        decisions=Decisions(
            budget=budget,
            reaches=tuple(_reach(answer, draws, target=target, budget=budget) for target in targets),
            outlook=_outlook(answer, draws, budget=budget) if budget is not None and budget > answer.window[1] else None,
            detectable=detectable_difference(answer) if answer.parameters["A"].identified else None,
        ),
    )


def percent(probability: float) -> str:
    """A probability for people; never certainty, which no finite number of draws shows."""
    if probability < 0.005:
        return "<1%"
    return ">99%" if probability > 0.995 else f"{probability:.0%}"


def leads_on(answer: Fit) -> bool:
    """Whether a fit says where more compute leads, and how surely: not if the curve is flat, has collapsed or has too few points."""
    return answer.status in _CLIMBING and answer.best is not None and answer.best.sample is not None


def draws_of(answer: Fit) -> Draws:
    """The posterior of a fit that leads on.

    Raises:
        UsageError: it does not.
    """
    if not leads_on(answer) or answer.best is None or answer.best.sample is None:
        raise UsageError("nothing follows from this fit", where=answer.curve.name, remedy=f"its status is {answer.status}; fit another law")
    return answer.best.sample()


def detectable_difference(answer: Fit, *, num_seeds: int = 1) -> float:
    """Least difference of A between two recipes that `num_seeds` runs of each, known as well as this one, would show.

    "Show": the interval of the difference, at the fit's level, leaves out 0 with probability .8. The spread between seeds
    enters by its prior, and the more so the better each run is known.

    Raises:
        UsageError: the fit does not lead on.
    """
    low, high = answer.curve.bounds
    recipe = pooled([draws_of(answer).parameters["A"]], scale=SPREAD * (high - low)).centre
    tail = 0.5 * (1.0 - answer.level)
    half_width = 0.5 * float(np.subtract(*np.quantile(recipe, [1.0 - tail, tail])))
    return half_width * (1.0 + float(ndtri(POWER) / ndtri(1.0 - tail))) * math.sqrt(2.0 / num_seeds)


def interval(values: FloatArray, *, level: float, unit: Literal["reward", "compute", ""] = "reward", identified: bool = True) -> Estimate:
    """Median and central interval of draws, of which some may be infinite; a median that is infinite, or not identified, is no value."""
    tail = 0.5 * (1.0 - level)
    low, median, high = (float(edge) for edge in np.quantile(values, [tail, 0.5, 1.0 - tail], method="inverted_cdf"))
    known = identified and math.isfinite(median)
    return Estimate(median if known else None, low, high, identified=known, unit=unit)


def _reach(answer: Fit, draws: Draws, *, target: float, budget: float | None) -> Reach:
    needed = _compute_needed(answer, draws, target)
    probability = float(np.mean(draws.parameters["A"] > target))
    identified = answer.parameters["A"].identified or probability >= SURE
    return Reach(
        target=target,
        probability=probability,
        compute=_within_the_climb(answer, interval(needed, level=answer.level, unit="compute", identified=identified)),
        by_budget=None if budget is None else float(np.mean(needed <= budget)),
    )


def _within_the_climb(answer: Fit, needed: Estimate) -> Estimate:
    """`needed`, but for a climb that was over before the first point: that alone is known of it."""
    first = float(answer.fitted.window(np.nextafter(0.0, 1.0)).compute[0])
    if answer.status is Status.SATURATED and 0.0 < needed.low < first:
        return Estimate(None, 0.0, max(first, needed.high), identified=False, unit="compute")
    return needed


def _compute_needed(answer: Fit, draws: Draws, target: float) -> FloatArray:
    """(N,) the compute at which each draw's mean first reaches `target`: 0 where it starts there, infinite where it never does."""
    positive = answer.curve.compute[answer.curve.compute > 0.0]
    compute = np.concatenate([[0.0], np.geomspace(_NEARLY_NONE * positive[0], _HORIZON * positive[-1], _GRID)])
    mean = draws.mean(compute)
    reached = mean >= target
    after = np.where(reached.any(axis=1), reached.argmax(axis=1), _GRID)
    before = np.maximum(after - 1, 0)
    rows = np.arange(mean.shape[0])
    rise = mean[rows, after] - mean[rows, before]
    part = np.where(rise > 0.0, (target - mean[rows, before]) / np.where(rise > 0.0, rise, 1.0), 0.0)
    needed = compute[before] + np.clip(part, 0.0, 1.0) * (compute[after] - compute[before])
    infinite_or_needed: FloatArray = np.where(reached.any(axis=1), needed, np.inf)
    return infinite_or_needed


def _outlook(answer: Fit, draws: Draws, *, budget: float) -> Outlook:
    spent, (low, high) = answer.window[1], answer.curve.bounds
    now, then = draws.mean(np.array([spent, budget])).T
    gain, left = then - now, draws.parameters["A"] - then
    margin = MARGIN * (high - low)
    worthwhile, goes_on = float(np.mean(gain >= margin)), float(np.mean(left >= margin))
    return Outlook(
        spent=spent,
        gain=interval(gain, level=answer.level),
        worthwhile=worthwhile,
        left=interval(left, level=answer.level, identified=answer.parameters["A"].identified),
        goes_on=goes_on,
        verdict=_verdict(worthwhile, goes_on),
    )


def _verdict(worthwhile: float, goes_on: float) -> Verdict:
    if worthwhile <= 1.0 - _LIKELY:
        return Verdict.STOP
    if worthwhile < _LIKELY:
        return Verdict.UNDECIDED
    return Verdict.SCALE if goes_on >= _LIKELY else Verdict.CONTINUE


def _reach_line(reach: Reach, answer: Fit) -> str:
    needed = reach.compute
    line = f"target {format_number(reach.target)}: reached with probability {percent(reach.probability)}"
    if needed.high == 0.0:
        line += ", from the start"
    elif math.isfinite(needed.low):
        value = "not known" if needed.value is None else Compute(needed.value, answer.curve.axis)
        until = "never" if math.isinf(needed.high) else Compute(needed.high, answer.curve.axis)
        line += f", compute needed {value} ({Compute(needed.low, answer.curve.axis)} to {until})"
    return line if reach.by_budget is None else f"{line}, within the budget with {percent(reach.by_budget)}"


def _outlook_line(outlook: Outlook | None) -> str:
    if outlook is None:
        return "spent"
    return f"{outlook.verdict}; gain {_amount(outlook.gain)}, left to the ceiling {_amount(outlook.left)}"


def _amount(estimate: Estimate) -> str:
    value = "not known" if estimate.value is None else format_number(estimate.value)
    return f"{value} ({format_number(estimate.low)} to {format_number(estimate.high)})"
