"""Recipes side by side, in words and tables: who ends higher, who climbs faster, where their curves cross."""

from __future__ import annotations

from collections.abc import Iterator

from scalerl.core.units import counted
from scalerl.curves.comparison import Comparison, Crossing, Pair, Standing, Tie
from scalerl.curves.decisions import SURE, percent
from scalerl.records.curve import Curve
from scalerl.reports import words
from scalerl.reports.decisions import PRIOR
from scalerl.reports.tables import Table

_MOST_PAIRS = 4
"""More of them are left to the table."""


def title(compared: Comparison) -> str:
    """What is compared."""
    return "Recipes side by side" + (f" on {compared.domain}" if compared.domain else "")


def sentences(compared: Comparison) -> tuple[str, ...]:
    """The verdict on each pair, the ceilings and the crossing; of many recipes only which ranks first."""
    if not compared.pairs:
        return (_alone(compared.arms[0], compared),)
    if len(compared.pairs) > _MOST_PAIRS:
        first = compared.arms[0]
        chance = "" if first.highest is None else f": its ceiling is the highest with probability {percent(first.highest)}"
        return (f"{first.name} ranks first of {len(compared.arms)}{chance}.",)
    return tuple(" ".join(_pair(pair, compared)) for pair in compared.pairs)


def ranking(compared: Comparison) -> Table:
    """The recipes by falling ceiling."""
    rows = tuple(_standing(arm, _curve(compared)) for arm in compared.arms)
    header = ("recipe", "runs", "ceiling A", f"{_level(compared)} interval", "spread between seeds", "highest of all")
    return Table("Recipes by ceiling", header, rows)


def pairs(compared: Comparison) -> Table:
    """The first recipe against every other."""
    curve = _curve(compared)
    rows = tuple(
        (
            " - ".join(pair.names),
            words.estimate(pair.difference, curve),
            words.reward_interval(pair.difference.low, pair.difference.high, curve),
            percent(pair.higher),
            "" if pair.crossing is None or pair.crossing.compute is None else words.estimate(pair.crossing.compute, curve),
            "" if pair.crossing is None else percent(pair.crossing.probability),
            "" if pair.tie is None else percent(pair.tie.faster),
        )
        for pair in compared.pairs
    )
    header = (
        "pair",
        "A, first - second",
        f"{_level(compared)} interval",
        "first higher",
        "curves cross at",
        "if at all",
        "first faster, at one A",
    )
    return Table("Pairs", header, rows)


def notes(compared: Comparison) -> tuple[str, ...]:
    """What was assumed or left out."""
    said = []
    single = [arm.name for arm in compared.arms if arm.num_runs == 1]
    if single:
        said.append(
            f"{', '.join(single)}: one run each, so that the spread between seeds is that of the prior, which takes"
            f" the ceiling of a recipe for known to {words.reward(compared.margin, _curve(compared))} at best; give more seeds."
        )
    said += [
        f"{arm.name}: {counted(len(arm.left_out), 'run')} left out, from which no ceiling follows: {', '.join(arm.left_out)}."
        for arm in compared.arms
        if arm.left_out
    ]
    said += [f"{fit.curve.name}: {doubt}" for arm in compared.members for fit in arm.fits for doubt in fit.doubts]
    metrics = {arm.name: sorted({fit.curve.metric for fit in arm.fits}) for arm in compared.members}
    if len({name for names in metrics.values() for name in names}) > 1:
        called = "; ".join(f"{', '.join(names)} of {arm}" for arm, names in metrics.items())
        said.append(f"The rewards have different names ({called}): they compare only if all were evaluated on the same thing.")
    if any(pair.crossing is None for pair in compared.pairs):
        said.append("Compute is counted in different units, so curves, B and C_mid are not compared; ceilings are.")
    return tuple(said)


def _alone(arm: Standing, compared: Comparison) -> str:
    """What the runs of the one recipe that has a ceiling say together."""
    curve = _curve(compared)
    if arm.A is None or arm.spread is None:
        return "No recipe has a ceiling to compare."
    runs = counted(arm.num_runs, "run")
    span = f"({_level(compared)} interval {words.estimate_interval(arm.A, curve)})"
    if arm.A.value is None:
        return f"The points of the {runs} of {arm.name} do not bound its ceiling: it may be anything in {span[1:-1]}."
    scatter = f", and its runs scatter by {words.estimate(arm.spread, curve)} (standard deviation)" if arm.spread.identified else ""
    return f"The {runs} of {arm.name} put its ceiling at {words.estimate(arm.A, curve)} {span}{scatter}."


def _pair(pair: Pair, compared: Comparison) -> Iterator[str]:
    yield _ceilings(pair, compared)
    if pair.tie is not None:
        yield _tie(pair.names, pair.tie, compared)
    if pair.crossing is not None:
        yield _crossing(pair.names, pair.crossing, compared)


def _ceilings(pair: Pair, compared: Comparison) -> str:
    (first, second), curve = pair.names, _curve(compared)
    span = words.reward_interval(pair.difference.low, pair.difference.high, curve)
    if pair.difference.value is None:
        open_ends = " and ".join(arm.name for arm in compared.arms if arm.name in pair.names and arm.A is not None and not arm.A.identified)
        surely = (
            f"{first} ends higher than {second}" if pair.higher >= SURE else f"Whether {first} ends higher than {second} is not decided"
        )
        return (
            f"{surely}: the points do not bound the ceiling of {open_ends}, the difference may be {span} ({_level(compared)} interval), "
            f"and the probability of {percent(pair.higher)} that {first} ends higher is not the points' alone: {PRIOR}."
        )
    by = f"{words.reward(pair.difference.value, curve)} ({_level(compared)} interval {span})"
    if pair.tie is not None:
        margin, widest = words.reward(compared.margin, curve), max(-pair.difference.low, pair.difference.high)
        are = "tie" if widest <= compared.margin else "are not told apart"
        return f"{first} and {second} {are}: their ceilings differ by {by}, and {margin} counts as equal."
    if pair.higher >= SURE:
        return f"{first} ends higher than {second}, by {by}, with probability {percent(pair.higher)}."
    return f"Whether {first} ends higher than {second} is not decided: by {by}, with probability {percent(pair.higher)}."


def _tie(names: tuple[str, str], tie: Tie, compared: Comparison) -> str:
    curve = _curve(compared)
    order = (0, 1) if tie.faster >= 0.5 else (1, 0)
    faster, slower = (names[index] for index in order)
    Bs = " against ".join(f"{words.estimate(tie.B[index], curve)} ({words.estimate_interval(tie.B[index], curve)})" for index in order)
    chance = max(tie.faster, 1.0 - tie.faster)
    climbs = f"{faster} climbs faster than {slower}" if chance >= SURE else f"it is not decided that {faster} climbs faster than {slower}"
    return f"With one ceiling of {words.reward(tie.A, curve)} for both, {climbs}: B {Bs}, with probability {percent(chance)}."


def _crossing(names: tuple[str, str], crossing: Crossing, compared: Comparison) -> str:
    curve = _curve(compared)
    within = f"between {words.compute_interval(*crossing.within, curve)}".replace(" to ", " and ")
    if crossing.compute is None or crossing.probability <= 1.0 - SURE:
        return f"Their curves do not cross {within}."
    place = f"{words.estimate(crossing.compute, curve)} ({_level(compared)} interval {words.estimate_interval(crossing.compute, curve)})"
    ahead, chance = (names[0], crossing.ahead) if crossing.ahead >= 0.5 else (names[1], 1.0 - crossing.ahead)
    end = f"at the end of that range {ahead} leads with probability {percent(chance)}"
    return f"Their curves cross {within} with probability {percent(crossing.probability)}, if they do at {place}; {end}."


def _standing(arm: Standing, curve: Curve) -> tuple[str, ...]:
    if arm.A is None or arm.spread is None or arm.highest is None:
        return (arm.name, "0", "", "", "", "")
    spread = words.estimate(arm.spread, curve) if arm.spread.identified else "not measured"
    return (arm.name, str(arm.num_runs), words.estimate(arm.A, curve), words.estimate_interval(arm.A, curve), spread, percent(arm.highest))


def _curve(compared: Comparison) -> Curve:
    """A curve of the first arm, which is in every pair: its axis and bounds say how amounts are written."""
    return compared.members[0].fits[0].curve


def _level(compared: Comparison) -> str:
    return words.level(compared.members[0].fits[0])
