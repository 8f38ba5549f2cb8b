"""What happened to a group, in an evaluation and at a push, as the events say it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from scalerl.records.cost import Cost
from scalerl.records.events import Evaluated, GroupFinished
from scalerl.records.roles import Handover
from scalerl.records.rollout import Group, Outcome


def group_finished(group: Group, *, costs: tuple[Cost, ...]) -> GroupFinished:
    """A graded group as an event."""
    completions = group.completions
    scores = [completion.score for completion in completions if completion.score is not None]
    inserted = tuple(completion.num_inserted for completion in completions)
    outcomes = tuple(score.outcome for score in scores)
    return GroupFinished(
        group=group.id,
        prompt_id=group.prompt.id,
        epoch=group.epoch,
        task=group.prompt.task,
        num_tokens=tuple(int(completion.token_ids.size) for completion in completions),
        values=tuple(score.value for score in scores),
        passed=tuple(score.passed for score in scores),
        finished=tuple(completion.finished for completion in completions),
        first_versions=tuple(completion.first_version for completion in completions),
        last_versions=tuple(completion.last_version for completion in completions),
        num_inserted=inserted if any(inserted) else (),
        outcomes=outcomes if set(outcomes) != {Outcome.GRADED} else (),
        costs=costs,
    )


def evaluations(groups: Sequence[Group], *, version: int, blocked_s: float, costs: Sequence[Cost]) -> Iterator[Evaluated]:
    """An event for each task of an evaluation's graded groups; the first tells what the whole evaluation took."""
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.prompt.task, []).append(group)
    for number, (task, its_groups) in enumerate(tasks.items()):
        tallies = [group.tally for group in its_groups]
        yield Evaluated(
            task=task,
            version=version,
            num_passed=sum(num_passed for num_passed, _ in tallies),
            num_graded=sum(num_graded for _, num_graded in tallies),
            blocked_s=blocked_s if number == 0 else 0.0,
            costs=_merged(costs) if number == 0 else (),
        )


def mismatch(published: Handover, taken: Handover) -> dict[str, float | None]:
    """How far trainer and generator differ on the probe under one version, in nats per token."""
    difference = np.abs(published.probe_log_probs - taken.probe_log_probs)
    if not difference.size:
        return {}
    known = {"mismatch_mean": float(difference.mean()), "mismatch_max": float(difference.max())}
    return {name: value if math.isfinite(value) else None for name, value in known.items()}


def _merged(costs: Sequence[Cost]) -> tuple[Cost, ...]:
    """Costs of one kind as one: an evaluation grades a thousand groups."""
    merged: dict[tuple[str | None, str, str], Cost] = {}
    for cost in costs:
        key = (cost.device, cost.activity, cost.detail)
        merged[key] = cost + merged[key] if key in merged else cost
    return tuple(merged.values())
