"""Metrics: one row per step, made of the groups that the step dealt with.

A group waits here between being finished and being trained, filtered or dropped; nothing else is kept, so memory is
that of the groups in the buffer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scalerl.accounting.fold import Fold
from scalerl.records.events import CheckpointStarted, GroupFinished, Resumed, RunEntry, StepFinished
from scalerl.records.rollout import Outcome


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """What a metrics row needs of a group."""

    num_completions: int
    num_tokens: int
    num_inserted: int
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
    num_filtered: int
    num_dropped: int
    num_failed_groups: int
    num_cancelled: int
    reward_mean: float | None
    """Over the generated completions with a score, filtered groups included: filtering does not flatter the reward."""
    pass_rate: float | None
    tokens_mean: float | None
    truncated_share: float | None
    interrupted_share: float | None
    spanning_share: float | None
    """Share of completions sampled by more than one version."""
    grading_failed_share: float | None
    age_mean: float | None
    """Over the trained groups, in versions."""
    age_largest: int | None
    trainer: dict[str, float | None]
    """What the trainer measured; None where it was not finite."""

    def flat(self) -> dict[str, Any]:
        """The row as trackers take it: one level, the trainer's metrics under `trainer/`."""
        row = msgspec.structs.asdict(self)
        measured = row.pop("trainer")
        return {**row, **{f"trainer/{name}": value for name, value in measured.items()}}


class Settled(msgspec.Struct, frozen=True):
    """What a checkpoint keeps of the fold: unfinished and buffered groups are generated again."""

    version: int
    age_counts: dict[int, int]


class MetricsFold(Fold):
    """Turns groups and steps into rows; `update` returns the row of a step when it is finished."""

    waiting: dict[int, Waiting] = {}
    age_counts: dict[int, int] = {}
    """Trained groups by age, over the whole run."""
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
            self.checkpoints[entry.seq] = Settled(self.version, dict(self.age_counts))
        elif isinstance(event, Resumed):
            settled = self.checkpoints.get(event.from_seq, Settled(0, {}))
            self.version, self.age_counts = settled.version, dict(settled.age_counts)
            self.waiting.clear()
        return None

    def age_quantile(self, probability: float) -> int | None:
        """The age, in versions, that a share of `probability` of the trained groups does not exceed."""
        total, seen = sum(self.age_counts.values()), 0
        for age in sorted(self.age_counts):
            seen += self.age_counts[age]
            if seen >= probability * total:
                return age
        return None

    def _row(self, time_s: float, event: StepFinished) -> MetricsRow:
        trained = [self.waiting.pop(group) for group in event.trained if group in self.waiting]
        filtered = [self.waiting.pop(group) for groups in event.filtered.values() for group in groups if group in self.waiting]
        for group in (*event.dropped, *event.failed, *event.cancelled):
            self.waiting.pop(group, None)
        ages = [self.version - group.oldest_version for group in trained]
        for age in ages:
            self.age_counts[age] = self.age_counts.get(age, 0) + 1
        self.version = event.version
        generated = trained + filtered
        num_completions = sum(group.num_completions for group in generated)
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
            reward_mean=_share(sum(group.value_sum for group in generated), num_values),
            pass_rate=_share(sum(group.num_passed for group in generated), num_values),
            tokens_mean=_share(sum(group.num_tokens for group in generated), num_completions),
            truncated_share=_share(sum(group.num_cut_off for group in generated), num_completions),
            interrupted_share=_share(sum(group.num_interrupted for group in generated), num_completions),
            spanning_share=_share(sum(group.num_spanning for group in generated), num_completions),
            grading_failed_share=_share(sum(group.num_failed for group in generated), num_completions),
            age_mean=_share(sum(ages), len(ages)),
            age_largest=max(ages, default=None),
            trainer=event.metrics,
        )


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _waiting(event: GroupFinished) -> Waiting:
    values = [value for value in event.values if value is not None]
    return Waiting(
        num_completions=len(event.num_tokens),
        num_tokens=sum(event.num_tokens),
        num_inserted=sum(event.num_inserted),
        num_cut_off=event.finished.count(False),
        num_interrupted=len(event.num_inserted) - event.num_inserted.count(0),
        num_spanning=sum(first != last for first, last in zip(event.first_versions, event.last_versions, strict=True)),
        num_failed=event.outcomes.count(Outcome.FAILED),
        num_passed=event.passed.count(True),
        value_sum=sum(values),
        num_values=len(values),
        oldest_version=min(event.first_versions),
    )
