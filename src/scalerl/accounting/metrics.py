"""Metrics: one row per step, made of the groups that the step dealt with, and their totals over the run.

A group waits here between being finished and being trained, filtered or dropped; nothing else is kept, so memory is
that of the groups in the buffer. A resume takes the totals back to its checkpoint: they are those of the lineage that
goes on.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scalerl.accounting.fold import Fold
from scalerl.accounting.pushes import push_sums
from scalerl.records.events import CheckpointStarted, GroupFinished, Resumed, RunEntry, StepFinished
from scalerl.records.rollout import Outcome


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """What a metrics row needs of a group."""

    num_completions: int
    num_tokens: int
    num_cut_off: int
    num_interrupted: int
    num_spanning: int
    """Completions whose tokens come from more than one version."""
    num_failed: int
    num_passed: int
    value_sum: float
    num_values: int
    oldest_version: int


class MetricsRow(msgspec.Struct, frozen=True, kw_only=True):
    """One step; rates are None where nothing was counted."""

    step: int
    version: int
    time_s: float
    num_trained: int
    """Groups in the loss."""
    num_filtered: int
    num_dropped: int
    num_failed_groups: int
    num_cancelled: int
    num_completions: int
    """Completions of the trained and the filtered groups: what the shares below are taken of."""
    num_tokens: int
    """Tokens of those completions, inserted ones included."""
    filtered: dict[str, int]
    """Groups that filters took out, by filter."""
    reward_mean: float | None
    """Over the generated completions with a score, filtered groups included: filtering does not flatter the reward."""
    pass_rate: float | None
    tokens_mean: float | None
    truncated_share: float | None
    interrupted_share: float | None
    spanning_share: float | None
    """Share of completions sampled by more than one version."""
    grading_failed_share: float | None
    """Over all completions that were to be graded, those of failed groups included."""
    age_mean: float | None
    """Over the trained groups, in versions."""
    age_largest: int | None
    push_waited_s: float | None = None
    """For which decoding stood still while the step's weights were taken; None without a push."""
    reprefill_tokens: int | None = None
    """Computed anew at the push."""
    reprefill_s: float | None = None
    drift_kl: float | None = None
    """KL divergence, in nats a token, that a kept cache makes; None where nothing was sampled."""
    drift_ess: float | None = None
    """Effective sample size of the tokens for that, as a share."""
    trainer: dict[str, float | None]
    """What the trainer measured; None where it was not finite."""

    def flat(self) -> dict[str, Any]:
        """The row as trackers take it: one level, the filters' counts under `filtered/`, the trainer's metrics under `trainer/`."""
        row = msgspec.structs.asdict(self)
        nested = {name: row.pop(name) for name in ("filtered", "trainer")}
        return {**row, **{f"{name}/{key}": value for name, values in nested.items() for key, value in values.items()}}


class Totals(msgspec.Struct):
    """Counts over a run. Completions are those of trained and filtered groups, unless they say `trained`."""

    num_steps: int = 0
    num_updates: int = 0
    """Steps that made a new version."""
    num_trained_groups: int = 0
    filtered: dict[str, int] = {}
    """Groups that filters took out, by filter."""
    num_dropped: int = 0
    """Groups too old to train on."""
    num_failed_groups: int = 0
    num_cancelled: int = 0
    num_completions: int = 0
    num_tokens: int = 0
    num_cut_off: int = 0
    """Completions that ended with their budget."""
    num_interrupted: int = 0
    num_grading_failed: int = 0
    num_trained_completions: int = 0
    num_trained_spanning: int = 0
    """Trained completions sampled by two versions or more."""
    prompts_left_out: int = 0
    """Prompts that No-Positive-Resampling leaves out as of the last step."""
    age_counts: dict[int, int] = {}
    """Trained groups by age in versions."""

    @property
    def num_filtered(self) -> int:
        """Groups that filters took out."""
        return sum(self.filtered.values())

    @property
    def age_mean(self) -> float | None:
        """Mean age of the trained groups, in versions."""
        return _share(sum(age * count for age, count in self.age_counts.items()), sum(self.age_counts.values()))

    @property
    def age_largest(self) -> int | None:
        """Largest age of a trained group, in versions."""
        return max(self.age_counts, default=None)

    def age_quantile(self, probability: float) -> int | None:
        """The age, in versions, that a share of `probability` of the trained groups does not exceed."""
        total, seen = sum(self.age_counts.values()), 0
        for age in sorted(self.age_counts):
            seen += self.age_counts[age]
            if seen >= probability * total:
                return age
        return None

    def copied(self) -> Totals:
        """A copy that shares nothing."""
        return msgspec.structs.replace(self, filtered=dict(self.filtered), age_counts=dict(self.age_counts))

    def to_dict(self) -> dict[str, Any]:
        """The counts in plain data, with what follows from them."""
        return {
            **msgspec.to_builtins(self, str_keys=True),
            "num_filtered": self.num_filtered,
            "age_mean": self.age_mean,
            "age_p95": self.age_quantile(0.95),
            "age_largest": self.age_largest,
        }


class Settled(msgspec.Struct, frozen=True):
    """What a checkpoint keeps of the fold: unfinished and buffered groups are generated again."""

    version: int
    totals: Totals


class MetricsFold(Fold):
    """Turns groups and steps into rows; `update` returns the row of a step when it is finished."""

    waiting: dict[int, Waiting] = {}
    totals: Totals = msgspec.field(default_factory=Totals)
    version: int = 0
    checkpoints: dict[int, Settled] = {}
    """What a resume goes back to, by the event at which a checkpoint was captured."""

    def update(self, entry: RunEntry) -> MetricsRow | None:
        """Take in one entry, in order."""
        event = entry.event
        if isinstance(event, GroupFinished):
            self.waiting[event.group] = _waiting(event)
        elif isinstance(event, StepFinished):
            return self._row(entry.time_s, event)
        elif isinstance(event, CheckpointStarted):
            self.checkpoints[entry.seq] = Settled(self.version, self.totals.copied())
        elif isinstance(event, Resumed):
            settled = self.checkpoints.get(event.from_seq, Settled(0, Totals()))
            self.version, self.totals = settled.version, settled.totals.copied()
            self.waiting.clear()
        return None

    def _row(self, time_s: float, event: StepFinished) -> MetricsRow:
        trained = [self.waiting.pop(group) for group in event.trained if group in self.waiting]
        filtered = [self.waiting.pop(group) for groups in event.filtered.values() for group in groups if group in self.waiting]
        failed = [self.waiting.pop(group) for group in event.failed if group in self.waiting]
        for group in (*event.dropped, *event.cancelled):
            self.waiting.pop(group, None)
        ages = [self.version - group.oldest_version for group in trained]
        self._add_to_totals(event, trained, filtered, ages)
        self.version = event.version
        generated = trained + filtered
        num_completions = sum(group.num_completions for group in generated)
        num_tokens = sum(group.num_tokens for group in generated)
        num_values = sum(group.num_values for group in generated)
        return MetricsRow(
            step=event.step,
            version=event.version,
            time_s=time_s,
            num_trained=len(event.trained),
            num_filtered=sum(map(len, event.filtered.values())),
            num_dropped=len(event.dropped),
            num_failed_groups=len(event.failed),
            num_cancelled=len(event.cancelled),
            num_completions=num_completions,
            num_tokens=num_tokens,
            filtered={name: len(groups) for name, groups in event.filtered.items()},
            reward_mean=_share(sum(group.value_sum for group in generated), num_values),
            pass_rate=_share(sum(group.num_passed for group in generated), num_values),
            tokens_mean=_share(num_tokens, num_completions),
            truncated_share=_share(sum(group.num_cut_off for group in generated), num_completions),
            interrupted_share=_share(sum(group.num_interrupted for group in generated), num_completions),
            spanning_share=_share(sum(group.num_spanning for group in generated), num_completions),
            grading_failed_share=_share(
                sum(group.num_failed for group in generated + failed), num_completions + sum(group.num_completions for group in failed)
            ),
            age_mean=_share(sum(ages), len(ages)),
            age_largest=max(ages, default=None),
            trainer=event.metrics,
            **_pushed(event),
        )

    def _add_to_totals(self, event: StepFinished, trained: list[Waiting], filtered: list[Waiting], ages: list[int]) -> None:
        totals = self.totals
        totals.num_steps += 1
        totals.num_updates += event.version != self.version
        totals.num_trained_groups += len(event.trained)
        totals.num_dropped += len(event.dropped)
        totals.num_failed_groups += len(event.failed)
        totals.num_cancelled += len(event.cancelled)
        for name, groups in event.filtered.items():
            totals.filtered[name] = totals.filtered.get(name, 0) + len(groups)
        for group in trained + filtered:
            totals.num_completions += group.num_completions
            totals.num_tokens += group.num_tokens
            totals.num_cut_off += group.num_cut_off
            totals.num_interrupted += group.num_interrupted
            totals.num_grading_failed += group.num_failed
        for group in trained:
            totals.num_trained_completions += group.num_completions
            totals.num_trained_spanning += group.num_spanning
        for age in ages:
            totals.age_counts[age] = totals.age_counts.get(age, 0) + 1
        totals.prompts_left_out = int(event.metrics.get("prompts_left_out") or 0)


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _pushed(event: StepFinished) -> dict[str, Any]:
    """What a row says of the step's push."""
    sums = push_sums(event)
    drift = sums.drift
    return {
        "push_waited_s": sums.waited_s if sums.num_pushes else None,
        "reprefill_tokens": sums.reprefill_tokens if sums.num_pushes else None,
        "reprefill_s": sums.reprefill_s if sums.num_pushes else None,
        "drift_kl": None if drift is None else drift.kl,
        "drift_ess": None if drift is None else drift.ess,
    }


def _waiting(event: GroupFinished) -> Waiting:
    values = [value for value in event.values if value is not None]
    return Waiting(
        num_completions=len(event.num_tokens),
        num_tokens=sum(event.num_tokens),
        num_cut_off=event.finished.count(False),
        num_interrupted=len(event.num_inserted) - event.num_inserted.count(0),
        num_spanning=sum(first != last for first, last in zip(event.first_versions, event.last_versions, strict=True)),
        num_failed=event.outcomes.count(Outcome.FAILED),
        num_passed=event.passed.count(True),
        value_sum=sum(values),
        num_values=len(values),
        oldest_version=min(event.first_versions),
    )
