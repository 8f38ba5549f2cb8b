"""A run of our own in a report: what it did, what it cost, and whether what was forecast came.

    summary = RunSummary.of(RunDirectory.open(Path("runs/mine")))

Everything is folded from the events once. The ceiling that a fit sees is held against the one that the task proves, and
the forecast from the first half of the compute against the last evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, TypeVar

from scalerl.accounting.ledger import Ledger, LedgerFold
from scalerl.accounting.metrics import MetricsFold, MetricsRow, Totals
from scalerl.accounting.pushes import PushFold
from scalerl.core.units import counted, format_number
from scalerl.curves.result import Estimate, Fit, Forecast
from scalerl.records.events import Alarmed, CheckpointStarted, Resumed, RunEnded, RunStarted
from scalerl.reports import words
from scalerl.reports.kv import KeepOrReprefill
from scalerl.reports.live import sparkline
from scalerl.reports.picture import ceiling_of
from scalerl.reports.tables import Table
from scalerl.runs import RunDirectory

_Item = TypeVar("_Item")
_NUM_BARS = 16
_MOST_POINTS = 400
"""A small plot shows no more: longer runs are averaged piece by piece."""


@dataclass(frozen=True, slots=True, eq=False)
class RunSummary:
    """What the events of a run say, steps that a resume repeated left out."""

    name: str
    recipe: str
    recipe_hash: str
    k: int
    """Largest age that the recipe permits."""
    ended: str | None
    """Why the run is over; None where it goes on or was killed."""
    rows: tuple[MetricsRow, ...]
    totals: Totals
    ledger: Ledger
    alarms: tuple[Alarmed, ...]
    num_resumes: int
    ceilings: Mapping[str, float]
    """By task, the largest held-out pass rate that any policy can reach."""
    kv: KeepOrReprefill

    @classmethod
    def of(cls, run: RunDirectory) -> RunSummary:
        """The summary of a run, whether it is over or goes on.

        Raises:
            CorruptLogError: the log is damaged before its end.
        """
        metrics, ledger, pushes = MetricsFold(), LedgerFold(), PushFold()
        rows: list[MetricsRow] = []
        alarms: list[Alarmed] = []
        captured: dict[int, int] = {-1: 0}
        ended, num_resumes, ceilings = None, 0, {}
        for entry in run.events():
            ledger.update(entry)
            pushes.update(entry)
            row = metrics.update(entry)
            event = entry.event
            if row is not None:
                rows.append(row)
            elif isinstance(event, Alarmed):
                alarms.append(event)
            elif isinstance(event, CheckpointStarted):
                captured[entry.seq] = event.step
            elif isinstance(event, RunStarted):
                ceilings = event.ceilings
            elif isinstance(event, RunEnded):
                ended = event.reason
            elif isinstance(event, Resumed):
                step = captured[event.from_seq]
                rows = [row for row in rows if row.step <= step]
                alarms = [alarm for alarm in alarms if alarm.step <= step]
                num_resumes, ended = num_resumes + 1, None
        recipe = run.recipe
        return cls(
            name=run.path.resolve().name,
            recipe=recipe.name,
            recipe_hash=recipe.hash,
            k=recipe.pipeline.k,
            ended=ended,
            rows=tuple(rows),
            totals=metrics.totals,
            ledger=ledger.ledger(),
            alarms=tuple(alarms),
            num_resumes=num_resumes,
            ceilings=ceilings,
            kv=KeepOrReprefill(recipe.engine.kv, pushes.sums),
        )

    def ceiling_of(self, fit: Fit) -> float | None:
        """The proved ceiling of the task that `fit` is a curve of; curves of several runs have their run before the task's name."""
        return self.ceilings.get(fit.curve.name.removeprefix(f"{fit.curve.source}: "))

    def to_dict(self) -> dict[str, Any]:
        """The summary in plain data, without the single steps."""
        alarms = [{"step": a.step, "alarm": a.alarm, "value": a.value, "limit": a.limit, "stops": a.stops} for a in self.alarms]
        return {
            "name": self.name,
            "recipe": self.recipe,
            "recipe_hash": self.recipe_hash,
            "k": self.k,
            "ended": self.ended,
            "num_resumes": self.num_resumes,
            "counts": self.totals.to_dict(),
            "ledger": self.ledger.to_dict(),
            "alarms": alarms,
            "ceilings": dict(self.ceilings),
            "keep_or_reprefill": self.kv.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class CeilingCheck:
    """The ceiling that a fit sees beside the proved one."""

    estimated: Estimate
    proved: float

    @property
    def holds(self) -> bool:
        """Whether the interval of A holds the proved ceiling."""
        return self.estimated.low <= self.proved <= self.estimated.high

    @property
    def half_width(self) -> float:
        """Half of the interval's width, in the unit of the reward."""
        return (self.estimated.high - self.estimated.low) / 2.0

    def to_dict(self) -> dict[str, Any]:
        """The check in plain data."""
        return {"proved": self.proved, "A": self.estimated.to_dict(), "holds": self.holds, "half_width": self.half_width}


@dataclass(frozen=True, slots=True, eq=False)
class HalfWay:
    """The forecast that the first half of the compute gives of the last evaluation, beside what came."""

    fit: Fit
    """On the first half."""
    forecast: Forecast
    measured: float

    @property
    def holds(self) -> bool:
        """Whether the last evaluation lies inside the interval."""
        return self.forecast.low <= self.measured <= self.forecast.high

    @property
    def half_width(self) -> float:
        """Half of the interval's width, in the unit of the reward."""
        return (self.forecast.high - self.forecast.low) / 2.0

    def to_dict(self) -> dict[str, Any]:
        """The check in plain data."""
        seen = {"points": len(self.fit.fitted), "window": list(self.fit.window), "status": str(self.fit.status)}
        return {**seen, "forecast": self.forecast.to_dict(), "measured": self.measured, "holds": self.holds, "half_width": self.half_width}


@dataclass(frozen=True, slots=True, eq=False)
class RunReport:
    """A run with the fits of its curves and what became of their forecasts."""

    summary: RunSummary
    fits: tuple[Fit, ...]
    half_ways: tuple[HalfWay, ...]
    """Of those fits that have one."""

    @classmethod
    def of(cls, run: RunDirectory, fits: Sequence[Fit]) -> RunReport:
        """The report of a run whose curves were fitted as `fits`."""
        found = (half_way(fit) for fit in fits)
        return cls(RunSummary.of(run), tuple(fits), tuple(one for one in found if one is not None))

    def ceiling_checks(self) -> list[tuple[Fit, CeilingCheck]]:
        """Each fit that sees a ceiling of a task whose ceiling is proved, with the check."""
        checks = []
        for fit in self.fits:
            proved, estimated = self.summary.ceiling_of(fit), ceiling_of(fit)
            if proved is not None and estimated is not None:
                checks.append((fit, CeilingCheck(estimated, proved)))
        return checks

    def sentences(self) -> list[str]:
        """What the run comes to, in words."""
        return [
            how_it_went(self.summary),
            *larger_batch(self.summary),
            *(ceiling_in_words(check, fit) for fit, check in self.ceiling_checks()),
            *(half_way_in_words(one) for one in self.half_ways),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The report in plain data; its fits stand among the document's curves."""
        return {
            **self.summary.to_dict(),
            "ceiling_checks": [{"curve": fit.curve.name, **check.to_dict()} for fit, check in self.ceiling_checks()],
            "half_way": [{"curve": one.fit.curve.name, **one.to_dict()} for one in self.half_ways],
        }


def half_way(fit: Fit) -> HalfWay | None:
    """The forecast of the last point by the points up to half of its compute, with the fit's settings; None without a fit."""
    curve = fit.curve
    if not len(curve) or fit.best is None or fit.refit is None:
        return None
    last = float(curve.compute[-1])
    half = fit.refit(window=(fit.window[0], 0.5 * last), at=(last,))
    if not half.forecasts:
        return None
    named = replace(half, curve=replace(curve, name=f"{curve.name}, forecast from the first half of the compute"))
    return HalfWay(named, half.forecasts[0], float(curve.reward[-1]))


def how_it_went(summary: RunSummary) -> str:
    """How far the run came and why it is over."""
    steps, time = counted(summary.totals.num_steps, "step"), words.device_time(summary.ledger.elapsed_device_s)
    end = f"ended ({summary.ended})" if summary.ended else "goes on, or was killed,"
    resumed = f", resumed {counted(summary.num_resumes, 'time')}" if summary.num_resumes else ""
    return f"The run {end} after {steps} and {time}{resumed}."


def larger_batch(summary: RunSummary) -> list[str]:
    """Whether a larger batch would help, where the run measured its gradient's noise: means of noise and signal, not of their quotient."""
    measured = [row for row in summary.rows if row.trainer.get("gradient_noise") is not None]
    if not measured:
        return []
    noise, signal = (fmean(row.trainer[name] or 0.0 for row in measured) for name in ("gradient_noise", "gradient_signal"))
    split = [within for row in measured if (within := row.trainer.get("gradient_noise_within")) is not None]
    prompts = fmean(row.num_trained for row in measured)
    told = f"Over {counted(len(measured), 'measured step')} of {prompts:.0f} trained prompts"
    halves = ""
    if split:
        share = min(fmean(split) / noise, 1.0) if noise > 0.0 else 0.0
        halves = f"; {share:.0%} of the noise is among completions of a prompt, which larger groups divide, and the rest among prompts"
    if signal <= 0.0:
        return [f"{told} the gradient cannot be told from its noise: a larger batch would help{halves}."]
    critical = prompts * noise / signal
    verdict = "a larger batch would help" if critical > prompts else "a larger batch buys little"
    return [f"{told} noise equals signal at {_short(critical)} prompts: {verdict}{halves}."]


def ceiling_in_words(check: CeilingCheck, fit: Fit) -> str:
    """The fitted ceiling beside the proved one."""
    interval = f"{words.level(fit)} interval of the ceiling, {words.estimate_interval(check.estimated, fit.curve)},"
    does = "holds" if check.holds else "does not hold"
    return f"The {interval} {does} the ceiling that the task proves, {words.reward(check.proved, fit.curve)}."


def half_way_in_words(half: HalfWay) -> str:
    """The forecast from the first half beside what came."""
    curve, forecast = half.fit.curve, half.forecast
    promised = f"{words.reward(forecast.mean, curve)} ({words.reward_interval(forecast.low, forecast.high, curve)})"
    came = f"{words.reward(half.measured, curve)} came, {'inside' if half.holds else 'outside'} the {words.level(half.fit)} interval"
    return f"The first half of the compute forecast {promised} for the last evaluation; {came}."


def counts(summary: RunSummary) -> Table:
    """What happened how often."""
    totals = summary.totals
    filtered = [(f"groups filtered by {name}", f"{count:,}") for name, count in totals.filtered.items()]
    age = "none was trained"
    if totals.age_mean is not None:
        age = f"mean {totals.age_mean:.2f}, p95 {totals.age_quantile(0.95)}, largest {totals.age_largest}; at most {summary.k} is allowed"
    rows = [
        ("steps", f"{totals.num_steps:,}, {totals.num_updates:,} of them updates"),
        ("groups trained", f"{totals.num_trained_groups:,}"),
        *(filtered or [("groups filtered", "0")]),
        ("groups dropped, failed, cancelled", f"{totals.num_dropped:,}, {totals.num_failed_groups:,}, {totals.num_cancelled:,}"),
        ("prompts left out by No-Positive-Resampling", f"{totals.prompts_left_out:,}"),
        ("completions interrupted", _part(totals.num_interrupted, totals.num_completions)),
        ("completions cut off at their budget", _part(totals.num_cut_off, totals.num_completions)),
        ("completions whose grading failed", _part(totals.num_grading_failed, totals.num_completions)),
        ("trained completions over two versions or more", _part(totals.num_trained_spanning, totals.num_trained_completions)),
        ("age of trained groups, in versions", age),
    ]
    return Table("What happened", ("what", "how often"), tuple(rows))


def alarms(summary: RunSummary) -> Table:
    """The alarms that were raised."""
    rows = tuple(
        (
            alarm.alarm.replace("_", " "),
            str(alarm.step),
            format_number(alarm.value),
            format_number(alarm.limit),
            "stop" if alarm.stops else "warning",
        )
        for alarm in summary.alarms
    )
    return Table("Alarms", ("alarm", "step", "value", "limit", "kind"), rows)


@dataclass(frozen=True, slots=True)
class Series:
    """Something that every step measured."""

    title: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


def series(summary: RunSummary) -> list[Series]:
    """What the steps measured, quantity by quantity; those that no step measured are left out."""
    found = []
    for title, measure in _MEASURES.items():
        points = [(row.step, value) for row in summary.rows if (value := measure(row)) is not None]
        if points:
            found.append(_shortened(title, points))
    return found


def measures(summary: RunSummary, *, is_ascii: bool = False) -> Table:
    """Each series in a line: where it began and ended, and how it ran."""
    rows = tuple(
        (
            one.title,
            _short(one.values[0]),
            _short(one.values[-1]),
            f"{_short(min(one.values))} to {_short(max(one.values))}",
            sparkline(_means(one.values, num_pieces=_NUM_BARS), is_ascii=is_ascii),
        )
        for one in series(summary)
    )
    return Table("What the steps measured", ("quantity", "first", "last", "range", "course"), rows)


def _trainer(name: str) -> Callable[[MetricsRow], float | None]:
    return lambda row: row.trainer.get(name)


_MEASURES: dict[str, Callable[[MetricsRow], float | None]] = {
    "mean reward": lambda row: row.reward_mean,
    "pass rate": lambda row: row.pass_rate,
    "tokens of a completion": lambda row: row.tokens_mean,
    "share cut off": lambda row: row.truncated_share,
    "share interrupted": lambda row: row.interrupted_share,
    "mean age, in versions": lambda row: row.age_mean,
    "groups filtered": lambda row: float(row.num_filtered),
    "prompts left out": _trainer("prompts_left_out"),
    "entropy, nats a token": _trainer("entropy"),
    "effective sample size": _trainer("ess"),
    "KL to the sampler, nats a token": _trainer("kl_behaviour"),
    "KL to the same weights' sampler": _trainer("kl_mismatch"),
    "tokens that a bound holds back": _trainer("clipped_share"),
    "worst mismatch, nats": _trainer("mismatch_max"),
    "KL by a kept cache, nats a token": lambda row: row.drift_kl,
    "decoding stood still for the push, s": lambda row: row.push_waited_s,
    "gradient norm": _trainer("grad_norm"),
    "variance that the critic explains": _trainer("critic_explained_variance"),
}
"""By title: what a step's row says of it."""


def _shortened(title: str, points: Sequence[tuple[int, float]]) -> Series:
    """At most `_MOST_POINTS` points: the mean of each piece, at its last step."""
    steps = tuple(piece[-1][0] for piece in _pieces(points, _MOST_POINTS))
    return Series(title, steps, tuple(_means([value for _, value in points], num_pieces=_MOST_POINTS)))


def _means(values: Sequence[float], *, num_pieces: int) -> list[float]:
    return [fmean(piece) for piece in _pieces(values, num_pieces)]


def _pieces(items: Sequence[_Item], num_pieces: int) -> list[Sequence[_Item]]:
    """At most `num_pieces` runs of neighbours, all of one size but the last."""
    size = -(-len(items) // num_pieces)
    return [items[start : start + size] for start in range(0, len(items), size)]


def _part(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({words.share(part / whole)})" if whole else "none"


def _short(value: float) -> str:
    """Two significant digits, and whole numbers from a hundred on."""
    return format_number(round(value)) if abs(value) >= 99.5 else re.sub(r"e-0", "e-", f"{value:.2g}")
