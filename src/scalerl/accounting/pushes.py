"""What pushes met, cost and changed: the data for "keep or re-prefill?", folded from a run's events.

    fold = PushFold()
    for entry in run.events():
        fold.update(entry)
    fold.sums            waits, re-prefill, drift by distance and position, and the completions of the lineage that goes on

A resume takes the sums back to its checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from scalerl.accounting.fold import Fold
from scalerl.accounting.kv_costs import Measured, Passes, Work, Workload
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import CheckpointStarted, GroupFinished, Resumed, RunEntry, StepFinished
from scalerl.records.push import DRIFT_PROBE, MeasuredDrift


class DriftSums(msgspec.Struct):
    """Running sums over tokens, or over completions whose weight is the product over tokens."""

    num: int = 0
    drift: float = 0.0
    drift_square: float = 0.0
    k3: float = 0.0
    weight: float = 0.0
    weight_square: float = 0.0

    @classmethod
    def total(cls, parts: Iterable[DriftSums]) -> DriftSums:
        """The sums of several parts."""
        total = cls()
        for part in parts:
            total.add(part)
        return total

    def add(self, other: DriftSums) -> None:
        """Add other sums, in place."""
        self.num += other.num
        self.drift += other.drift
        self.drift_square += other.drift_square
        self.k3 += other.k3
        self.weight += other.weight
        self.weight_square += other.weight_square

    @property
    def sd(self) -> float:
        """Root mean square of the drift, in nats: how far a log-prob is off."""
        return math.sqrt(self.drift_square / self.num)

    @property
    def kl(self) -> float:
        """KL divergence from the sampling distribution to the other one, in nats a token."""
        return self.k3 / self.num

    @property
    def ess(self) -> float:
        """Effective sample size as a share of the sample; 1 without any drift."""
        return self.weight**2 / (self.num * self.weight_square)


class KlByPush(msgspec.Struct):
    """Moments of each push's tokens N and KL sum S, for the error of sum S / sum N: tokens of one push are no independent evidence."""

    num_pushes: int = 0
    tokens: float = 0.0
    kl: float = 0.0
    tokens_square: float = 0.0
    tokens_kl: float = 0.0
    kl_square: float = 0.0

    def add(self, *, tokens: int, kl: float) -> None:
        """Take in one push."""
        self.num_pushes += 1
        self.tokens += tokens
        self.kl += kl
        self.tokens_square += tokens**2
        self.tokens_kl += tokens * kl
        self.kl_square += kl**2

    @property
    def standard_error(self) -> float | None:
        """Of the KL per token, by the linearised ratio; None from a single push."""
        n = self.num_pushes
        if n < 2:
            return None
        mean = self.kl / self.tokens
        square = self.kl_square - 2.0 * mean * self.tokens_kl + mean**2 * self.tokens_square
        return math.sqrt(max(square, 0.0) * n / (n - 1)) / self.tokens


class PushSums(msgspec.Struct):
    """Sums over the pushes of a run."""

    num_pushes: int = 0
    num_met: int = 0
    """Pushes that met completions in flight."""
    num_rows: int = 0
    """Completions in flight, over all pushes; and of them:"""
    prompt_tokens: int = 0
    generated_tokens: int = 0
    needed_tokens: int = 0
    """What computing their caches anew takes, whether it was done or not."""
    needed_pairs: int = 0
    waited_s: float = 0.0
    """For which decoding stood still."""
    waited_longest_s: float = 0.0
    reprefill_s: float = 0.0
    reprefill_tokens: int = 0
    """Tokens that were computed anew."""
    probe_s: float = 0.0
    """What the drift probe took."""
    generate_s: float = 0.0
    generate_tokens: int = 0
    passes: Passes = msgspec.field(default_factory=Passes)
    """Whole passes over caches: re-prefills, or with a kept cache those of the probe."""
    tokens: dict[int, dict[int, DriftSums]] = {}
    """Drift of tokens, by version distance, then by the bucket of their position."""
    traces: dict[int, DriftSums] = {}
    """Weights of completions, by version distance."""
    kl_by_push: KlByPush = msgspec.field(default_factory=KlByPush)
    lengths: dict[int, int] = {}
    """Completions by their number of tokens."""

    @property
    def measured(self) -> Measured | None:
        """What forecasts of other lengths and intervals start from; None where no completion that has ended can have met a push."""
        if not (self.num_rows and self.generate_tokens and max(self.lengths, default=0) > 1):
            return None
        num_completions, num_tokens = sum(self.lengths.values()), sum(length * count for length, count in self.lengths.items())
        load = Workload(
            lengths=dict(self.lengths),
            prompt_tokens=self.prompt_tokens / self.num_rows,
            # Every row that a push meets is a push in a completion's life.
            interval_tokens=num_tokens / self.num_rows,
            num_rows=self.num_rows / self.num_met,
            prompt_share=(self.needed_tokens - self.generated_tokens) / self.prompt_tokens,
        )
        needed = Work(self.needed_tokens / num_completions, self.needed_pairs / num_completions)
        return Measured(load, needed, self.passes.rates(), self.generate_s / self.generate_tokens)

    @property
    def by_distance(self) -> dict[int, DriftSums]:
        """Drift of tokens by version distance."""
        return {distance: DriftSums.total(self.tokens[distance].values()) for distance in sorted(self.tokens)}

    @property
    def by_position(self) -> dict[int, DriftSums]:
        """Drift of tokens by the bucket of their position."""
        buckets = sorted({bucket for of_distance in self.tokens.values() for bucket in of_distance})
        return {
            bucket: DriftSums.total(of_distance[bucket] for of_distance in self.tokens.values() if bucket in of_distance)
            for bucket in buckets
        }

    @property
    def drift(self) -> DriftSums | None:
        """Drift of all tokens that were compared; None where there are none: absence is not zero."""
        return DriftSums.total(self.by_distance.values()) if self.tokens else None

    def copied(self) -> PushSums:
        """A copy that shares nothing."""
        return msgspec.json.decode(msgspec.json.encode(self), type=PushSums)


class PushFold(Fold):
    """Collects what every push met and changed."""

    sums: PushSums = msgspec.field(default_factory=PushSums)
    checkpoints: dict[int, PushSums] = {}
    """What a resume goes back to, by the event at which a checkpoint was captured."""

    def update(self, entry: RunEntry) -> None:
        """Take in one entry, in order."""
        event, sums = entry.event, self.sums
        for cost in event.costs:
            _add_cost(sums, cost)
        if isinstance(event, StepFinished):
            _add_push(sums, event)
        elif isinstance(event, GroupFinished):
            for length in event.num_tokens:
                sums.lengths[length] = sums.lengths.get(length, 0) + 1
        elif isinstance(event, CheckpointStarted):
            self.checkpoints[entry.seq] = sums.copied()
        elif isinstance(event, Resumed):
            captured = self.checkpoints.get(event.from_seq)
            self.sums = PushSums() if captured is None else captured.copied()


def push_sums(event: StepFinished) -> PushSums:
    """The sums of one step's push."""
    fold = PushFold()
    fold.update(RunEntry(0, 0.0, event))
    return fold.sums


def _add_cost(sums: PushSums, cost: Cost) -> None:
    if cost.activity is Activity.GENERATE and not cost.detail:  # not what it listened to in between
        sums.generate_s += cost.seconds
        sums.generate_tokens += cost.tokens
    elif cost.activity is Activity.REPREFILL:
        sums.reprefill_s += cost.seconds
        sums.reprefill_tokens += cost.tokens
    elif _is_probe(cost):
        sums.probe_s += cost.seconds


def _add_push(sums: PushSums, event: StepFinished) -> None:
    push = event.push
    if push is None:
        return
    sums.num_pushes += 1
    sums.num_met += push.num_rows > 0
    sums.num_rows += push.num_rows
    sums.prompt_tokens += push.prompt_tokens
    sums.generated_tokens += push.generated_tokens
    sums.needed_tokens += push.reprefill_tokens
    sums.needed_pairs += push.reprefill_pairs
    sums.waited_s += push.waited_s
    sums.waited_longest_s = max(sums.waited_longest_s, push.waited_s)
    reprefill_s = sum(cost.seconds for cost in event.costs if cost.activity is Activity.REPREFILL)
    if reprefill_s and push.reprefill_tokens:
        sums.passes.add(Work(push.reprefill_tokens, push.reprefill_pairs), seconds=reprefill_s)
    if push.drift is not None:
        _add_drift(sums, push.drift)
        probe_s = sum(cost.seconds for cost in event.costs if _is_probe(cost))
        if probe_s and push.drift.recomputed_tokens:
            sums.passes.add(Work(push.drift.recomputed_tokens, push.drift.recomputed_pairs), seconds=probe_s)


def _add_drift(sums: PushSums, drift: MeasuredDrift) -> None:
    for cell in drift.tokens:
        part = DriftSums(cell.num_tokens, cell.drift, cell.drift_square, cell.k3, cell.weight, cell.weight_square)
        sums.tokens.setdefault(cell.distance, {}).setdefault(cell.bucket, DriftSums()).add(part)
    for traces in drift.traces:
        part = DriftSums(traces.num_traces, weight=traces.weight, weight_square=traces.weight_square)
        sums.traces.setdefault(traces.distance, DriftSums()).add(part)
    sums.kl_by_push.add(tokens=sum(cell.num_tokens for cell in drift.tokens), kl=sum(cell.k3 for cell in drift.tokens))


def _is_probe(cost: Cost) -> bool:
    return cost.activity is Activity.PUSH and cost.detail == DRIFT_PROBE
