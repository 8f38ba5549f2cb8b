"""Keep or re-prefill? What a run says of it: the drift that a kept cache makes, what re-prefill takes, and a verdict.

    print(KeepOrReprefill.of(RunDirectory.open(Path("runs/mine"))))

The verdict weighs the drift against its price. The drift counts as small where its KL divergence stays below .005 nats a token
and as large above .05: weights whose logarithms are normal have an effective sample size of exp(-2 KL), .99 and .90 there. Between
them, and where what is large is dear to avoid, only the reward of a run with each policy can tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from scipy.special import stdtrit

from scalerl.accounting.kv_costs import Forecast, Measured
from scalerl.accounting.pushes import DriftSums, PushFold, PushSums
from scalerl.core.units import counted, format_number
from scalerl.reports import words
from scalerl.reports.tables import Table
from scalerl.runs import RunDirectory

SMALL_KL, LARGE_KL = 0.005, 0.05
"""Nats a token below which a kept cache is as good as a new one, and above which it is not."""
CHEAP_SHARE, DEAR_SHARE = 0.02, 0.10
"""Of generation: what one pays without a thought, and what one does not."""
_LEVEL = 0.95
"""Of intervals, with Student's t: an error that two pushes tell is hardly known itself."""
LENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0)
INTERVALS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, eq=False)
class KeepOrReprefill:
    """What a run measured of its pushes, and what follows."""

    kv: str
    """The policy of the run."""
    sums: PushSums

    @classmethod
    def of(cls, run: RunDirectory) -> KeepOrReprefill:
        """The answer of a run, whether it is over or goes on.

        Raises:
            CorruptLogError: the log is damaged before its end.
        """
        fold = PushFold()
        for entry in run.events():
            fold.update(entry)
        return cls(run.recipe.engine.kv, fold.sums)

    @property
    def measured(self) -> Measured | None:
        """What forecasts start from; None where no completion that has ended can have met a push."""
        return self.sums.measured

    @property
    def share(self) -> float | None:
        """Of generation, that re-prefill took or would have taken; None where nothing tells."""
        sums = self.sums
        if sums.reprefill_s:
            return sums.reprefill_s / (sums.reprefill_s + sums.generate_s)
        return None if self.measured is None else self.measured.at().reprefill_share

    @property
    def kl_interval(self) -> tuple[float, float] | None:
        """Of the KL divergence in nats a token, some 95 %; None where fewer than two pushes measured it."""
        drift, by_push = self.sums.drift, self.sums.kl_by_push
        if drift is None or by_push.standard_error is None:
            return None
        reach = float(stdtrit(by_push.num_pushes - 1, (1.0 + _LEVEL) / 2.0)) * by_push.standard_error
        return max(drift.kl - reach, 0.0), drift.kl + reach

    def sentences(self) -> list[str]:
        """What was measured, what it takes, and the verdict."""
        if self.measured is None:
            return [f"Not measured: {self._why_unmeasured()}."]
        return [said for said in (self._drift_in_words(), self._cost_in_words(), self._waits_in_words(), self.verdict()) if said]

    def verdict(self) -> str:
        """Keep, re-prefill, or why neither follows, in one sentence."""
        interval, share = self.kl_interval, self.share
        if interval is None:
            return f"No verdict: {self._why_unknown()}."
        low, high = interval
        price = (
            "what re-prefill would take is not known" if share is None else f"re-prefill {self._takes} {words.share(share)} of generation"
        )
        if high <= SMALL_KL:
            return f"Keep: the drift is below {words.number(max(high, 1e-9))} nats a token, too small to matter, and {price}."
        if low > SMALL_KL and share is not None and (share <= CHEAP_SHARE or (low >= LARGE_KL and share <= DEAR_SHARE)):
            return f"Re-prefill: the drift is {_interval(low, high)} nats a token, and {price}."
        if low <= SMALL_KL:
            return f"Undecided: the drift is {_interval(low, high)} nats a token, which may or may not matter; measure more pushes."
        size = "large" if low >= LARGE_KL else "noticeable"
        return f"A trade: the drift is {size}, {_interval(low, high)} nats a token, and {price}; compare the rewards of a run with each."

    def by_distance(self) -> Table:
        """The drift by versions between a completion's first token and the token."""
        rows = tuple(
            (str(distance), *_drift_cells(sums), *_trace_cells(self.sums.traces.get(distance)))
            for distance, sums in self.sums.by_distance.items()
        )
        return Table("Drift by version distance", ("versions", *_DRIFT_HEADER, "completions", "ESS of their products"), rows)

    def by_position(self) -> Table:
        """The drift by the place in the completion."""
        rows = tuple((_positions(bucket), *_drift_cells(sums)) for bucket, sums in self.sums.by_position.items())
        return Table("Drift by position", ("tokens before it", *_DRIFT_HEADER), rows)

    def at_lengths(self) -> Table:
        """What the policies would cost were completions longer."""
        rows = tuple(
            (f"x{length:g}", format_number(same.mean_tokens), str(same.least_k), *_shares(same), *_shares(along))
            for length, same, along in self._forecasts_of_lengths()
        )
        header = (
            "lengths",
            "mean tokens",
            "least k",
            "re-prefill",
            "drain, idle slots",
            "re-prefill, interval grows along",
            "drain, the same",
        )
        return Table("At other lengths (keep costs nothing)", header, rows)

    def at_intervals(self) -> Table:
        """What the policies would cost were pushes rarer, or more frequent."""
        rows = tuple(
            (
                f"x{interval:g}",
                format_number(then.interval_tokens),
                f"{then.num_pushes:.2g}",
                str(then.least_k),
                f"{then.reprefill_tokens:.2g}",
                *_shares(then),
            )
            for interval, then in self._forecasts_of_intervals()
        )
        header = (
            "interval",
            "tokens between pushes",
            "pushes in a life",
            "least k",
            "anew, for each token",
            "re-prefill",
            "drain, idle slots",
        )
        return Table("At other intervals between updates", header, rows)

    def tables(self) -> tuple[Table, ...]:
        """All tables; those of what was not measured have no rows."""
        return self.by_distance(), self.by_position(), self.at_lengths(), self.at_intervals()

    def to_dict(self) -> dict[str, Any]:
        """The answer in plain data."""
        drift, interval = self.sums.drift, self.kl_interval
        return {
            "kv": self.kv,
            "num_pushes": self.sums.num_pushes,
            "waited_s": self.sums.waited_s,
            "reprefill_tokens": self.sums.reprefill_tokens,
            "reprefill_s": self.sums.reprefill_s,
            "reprefill_share": self.share,
            "drift": None if drift is None else _drift_dict(drift),
            "kl_interval": None if interval is None else list(interval),
            "by_distance": {str(distance): _drift_dict(sums) for distance, sums in self.sums.by_distance.items()},
            "by_position": {_positions(bucket): _drift_dict(sums) for bucket, sums in self.sums.by_position.items()},
            "at_lengths": {f"{length:g}": msgspec.to_builtins(same) for length, same, _ in self._forecasts_of_lengths()},
            "at_intervals": {f"{interval:g}": msgspec.to_builtins(then) for interval, then in self._forecasts_of_intervals()},
            "verdict": self.sentences()[-1],
        }

    def plots(self) -> list[dict[str, Any]]:
        """KL divergence in nats a token by distance and by position, as bars."""
        distance, position = self.sums.by_distance, self.sums.by_position
        shown = {
            "versions after the first token": (map(str, distance), distance),
            "tokens before it": (map(_positions, position), position),
        }
        return [
            {"caption": f"KL by a kept cache, nats a token, over {what}", "x": list(x), "y": [one.kl for one in by.values()]}
            for what, (x, by) in shown.items()
        ]

    def __str__(self) -> str:
        """Sentences and tables as plain text."""
        blocks = [_as_text(table) for table in self.tables() if table.rows]
        return "\n\n".join(["\n".join(self.sentences()), *blocks])

    def _forecasts_of_lengths(self) -> Iterator[tuple[float, Forecast, Forecast]]:
        """By length: at the run's interval, and at one that grows with the length, as where batch and rows stay."""
        if self.measured is not None:
            for length in LENGTHS:
                yield length, self.measured.at(length=length), self.measured.at(length=length, interval=length)

    def _forecasts_of_intervals(self) -> Iterator[tuple[float, Forecast]]:
        if self.measured is not None:
            for interval in INTERVALS:
                yield interval, self.measured.at(interval=interval)

    def _drift_in_words(self) -> str:
        drift, interval = self.sums.drift, self.kl_interval
        if drift is None:
            return ""
        between = "" if interval is None else f" ({_interval(*interval)})"
        makes = "makes" if self.kv == "keep" else "would make"
        distances = list(self.sums.by_distance)
        far = f"{distances[0]} to {distances[-1]} versions" if len(distances) > 1 else counted(distances[0], "version")
        return (
            f"Over {drift.num:,} tokens, {far} after the first token of their completion, a kept cache {makes} a difference of"
            f" {words.number(drift.sd)} nats (root mean square) and a KL divergence of {words.number(drift.kl)} nats a token{between};"
            f" the effective sample size is {drift.ess:.4f}."
        )

    def _cost_in_words(self) -> str:
        sums, share = self.sums, self.share
        per_push = format_number(sums.needed_tokens / sums.num_met)
        if sums.reprefill_s and share is not None:
            took = f"took {format_number(sums.reprefill_s)} s, {words.share(share)} of it and generation together"
            return f"Computing the caches anew, {per_push} tokens a push, {took}."
        if share is None:
            return f"Computing the caches anew would be {per_push} tokens a push; what that takes was not measured."
        price = f"{self._takes} {words.share(share)} of it and generation together"
        return f"Computing the caches anew would be {per_push} tokens a push, which {price}."

    @property
    def _takes(self) -> str:
        # The probe's passes are those of a few rows, and dearer a token than those of all.
        return "takes" if self.sums.reprefill_s else "would take at most"

    def _waits_in_words(self) -> str:
        sums = self.sums
        mean, longest = (f"{format_number(1000.0 * seconds)} ms" for seconds in (sums.waited_s / sums.num_pushes, sums.waited_longest_s))
        what = "completions were let end and none begun" if self.kv == "drain" else "decoding stood still"
        return f"For a push {what} for {mean} in the mean and {longest} at most."

    def _why_unmeasured(self) -> str:
        if not self.sums.num_pushes:
            return "weights have not changed yet"
        if not self.sums.num_rows:
            return "no completion was in flight when weights changed, and every policy is the same"
        return "of the completions that were in flight when weights changed none has ended yet"

    def _why_unknown(self) -> str:
        if self.kv == "drain":
            return "with drain no cache outlives its version"
        if self.sums.drift is None:
            return "the drift was not sampled (see engine.drift, which the embedded engine has)"
        return "one push alone has measured the drift"


_DRIFT_HEADER = ("tokens", "rms, nats", "KL, nats a token", "ESS")


def _drift_cells(sums: DriftSums) -> tuple[str, ...]:
    return f"{sums.num:,}", words.number(sums.sd), words.number(sums.kl), f"{sums.ess:.4f}"


def _trace_cells(sums: DriftSums | None) -> tuple[str, str]:
    return ("", "") if sums is None else (f"{sums.num:,}", f"{sums.ess:.4f}")


def _drift_dict(sums: DriftSums) -> dict[str, float]:
    return {"num_tokens": sums.num, "sd": sums.sd, "kl": sums.kl, "ess": sums.ess}


def _positions(bucket: int) -> str:
    """A bucket's positions: `0`, `1-2`, `3-6`."""
    low, high = 2**bucket - 1, 2 ** (bucket + 1) - 2
    return str(low) if low == high else f"{low}-{high}"


def _shares(forecast: Forecast) -> tuple[str, str]:
    share = forecast.reprefill_share
    return "not known" if share is None else words.share(share), words.share(forecast.drain_idle_share)


def _interval(low: float, high: float) -> str:
    return f"{words.number(low)} to {words.number(high)}"


def _as_text(table: Table) -> str:
    columns = list(zip(table.header, *table.rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in (table.header, *table.rows)]
    return "\n".join([table.caption, *lines])
