"""The orchestrator: the one training loop, plain asyncio on whatever clock, roles and store it is given.

    async with TaskGroup:
        collect:  generator.finished() -> grader.grade() -> buffer
        train:    wait for a batch that the age rule permits -> filters -> trainer.train -> push -> evaluate -> checkpoint

What may be in flight follows from three bounds, applied after every change by `_admit`: the age rule (no more than
P (k + 1) groups are outstanding), the generator's slots, and for a synchronous run one batch at a time. How many finished
groups may wait is a bound of its own (`ready_batches`): the generator is granted room for them and stands still without.

At every moment and for every group: submitted = in flight + grading + buffered + training + trained + filtered + dropped
+ failed + cancelled. A simulation checks this at every event (see simulation.py).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean
from typing import Literal, Protocol

import msgspec
import numpy as np

from scalerl.core.clock import Clock
from scalerl.core.errors import ScalerlError
from scalerl.core.events import Entry
from scalerl.curriculum.filters import Filter
from scalerl.objective.length_controls import LengthControl
from scalerl.pipeline.buffer import fits
from scalerl.pipeline.evaluation import is_due
from scalerl.pipeline.prompt_queue import PromptQueue, QueueState, Turn
from scalerl.pipeline.schedules import Schedule
from scalerl.records.cost import Cost
from scalerl.records.events import CheckpointStarted, Evaluated, Event, GroupFinished, RunEnded, Spent, StepFinished
from scalerl.records.roles import Generator, Grader, Handover, Request, Store, Trainer, Update
from scalerl.records.rollout import Batch, Completion, Group, Outcome, Prompt, Score

OnStale = Literal["hold", "drop", "cap_admission"]


class Place(StrEnum):
    """Where a group is; the last five are final."""

    IN_FLIGHT = "in_flight"
    GRADING = "grading"
    BUFFERED = "buffered"
    TRAINING = "training"
    TRAINED = "trained"
    FILTERED = "filtered"
    DROPPED = "dropped"
    """Too old to train on."""
    FAILED = "failed"
    """None of its completions could be graded."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What of a recipe the loop needs."""

    num_prompts: int
    """P: groups per step."""
    group: int
    """G: completions per group."""
    slots: int
    """Completions that the generator decodes at once."""
    k: int
    schedule: Schedule
    on_stale: OnStale
    ready_batches: int
    patience: int
    """Batches in a row without a group to train on after which the run ends."""
    filters: tuple[Filter, ...]
    control: LengthControl
    evaluate_every: int
    evaluation_growth: float
    evaluation_samples: int
    checkpoint_every: int


class Untold(msgspec.Struct):
    """Groups settled since the last step was told, by how: the next step tells them."""

    filtered: dict[str, list[int]] = {}
    dropped: list[int] = []
    failed: list[int] = []


class LoopState(msgspec.Struct):
    """What a checkpoint keeps of the loop."""

    step: int = 0
    version: int = 0
    next_group: int = 0
    queue: QueueState = msgspec.field(default_factory=QueueState)
    untold: Untold = msgspec.field(default_factory=Untold)
    """Their prompts are settled in the queue, so no step of a resumed run but its first can tell of them."""
    evaluated: int | None = None
    """The version that was evaluated last."""
    seq: int = -1
    """The event that the state was captured at."""


class Journal(Protocol):
    """Where events go: the log, and whoever folds it."""

    def append(self, event: Event) -> Entry[Event]:
        """Number, stamp and keep an event."""
        ...


@dataclass(slots=True)
class _Outstanding:
    """A group on its way; `group` is there from when it is finished, graded from when it is buffered."""

    turn: Turn
    oldest_version: int
    """The version that sampled its oldest first token, or a bound below it while that is not known."""
    place: Place = Place.IN_FLIGHT
    group: Group | None = None


@dataclass(slots=True)
class _Fruitless:
    """Groups in a row that gave nothing to train on."""

    num_filtered: int = 0
    num_failed: int = 0
    values: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    """Their rewards, the latest."""

    @property
    def num_groups(self) -> int:
        return self.num_filtered + self.num_failed

    def add(self, group: Group) -> None:
        if _has_failed(group):
            self.num_failed += 1
        else:
            self.num_filtered += 1
            self.values.extend(_values(group))

    def sentence(self) -> str:
        told = f"the last {self.num_groups} groups gave nothing to train on: 0 kept, {self.num_filtered} filtered"
        told += f", {self.num_failed} not graded" if self.num_failed else ""
        return told + (f", mean reward {fmean(self.values):.3f}" if self.values else "")

    def remedy(self) -> str:
        if self.num_failed > self.num_filtered:
            return "see why the grader fails, then resume the run"
        return "choose easier or harder prompts, a larger batch.group, or raise pipeline.patience"


class Orchestrator:
    """Runs one training run from `state` to its end."""

    def __init__(
        self,
        settings: LoopSettings,
        *,
        prompts: PromptQueue,
        held_out: Sequence[Prompt],
        generator: Generator,
        grader: Grader,
        trainer: Trainer,
        store: Store,
        journal: Journal,
        clock: Clock,
        ends: Callable[[int], str | None],
        inspect_base: Callable[[Sequence[Group]], None] | None = None,
        keep_rollout: Callable[[Group], None] | None = None,
        state: LoopState | None = None,
    ) -> None:
        """
        Args:
            ends: the reason to end after a step, if there is one: the budget is spent, an alarm stops the run.
            inspect_base: looks at the graded held-out groups of the base, and raises where RL cannot be expected to work.
            keep_rollout: takes every graded training group.
            state: of the checkpoint that the roles were started from.
        """
        state = LoopState() if state is None else state
        self.settings = settings
        self.step, self.version = state.step, state.version
        self.census: dict[Place, int] = dict.fromkeys(Place, 0)
        self.num_submitted = 0
        self._resumed = state.seq >= 0
        self._next_group = state.next_group
        self._pushed_version = state.version
        self._prompts = prompts
        self._held_out = held_out
        self._generator, self._grader, self._trainer, self._store = generator, grader, trainer, store
        self._journal = journal
        self._clock = clock
        self._ends = ends
        self._inspect_base = inspect_base
        self._keep_rollout = keep_rollout
        self._outstanding: dict[int, _Outstanding] = {}
        self._untold = state.untold
        self._granted = 0
        self._held = False
        self._fruitless = _Fruitless()
        self._changed = asyncio.Condition()
        self._background: list[asyncio.Task[None]] = []
        self._ending = False
        self._last_evaluated: int | None = state.evaluated
        self._last_saved: int | None = state.step if self._resumed else None
        self._stop_reason: str | None = None

    def stop(self, reason: str) -> None:
        """End the run after the step that is being worked on, with an evaluation and a checkpoint."""
        self._stop_reason = reason

    async def run(self) -> str:
        """Train until the budget, an alarm or `stop` ends the run; returns the reason.

        Raises:
            ScalerlError: a role failed, or no batch left anything to train on for too long.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                self._background = [tasks.create_task(self._collect(tasks))]
                reason = await self._train()
                self._ending = True
                for task in self._background:
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        await self._finish(reason)
        return reason

    # Generating --------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Submit as many prompts as may be in flight, and grant room for as many finished groups as may wait."""
        if self._ending:
            return
        turns: list[Turn] = []
        num_admissible = self._num_admissible()
        while len(turns) < num_admissible and (turn := self._prompts.take()) is not None:
            turns.append(turn)
        if turns:
            self._generator.submit([self._request(turn) for turn in turns])
        waiting = self.census[Place.BUFFERED] + self.census[Place.GRADING]
        # A straggler that the trainer waits for must not wait for room itself.
        room = max(self._ready_bound() - waiting, int(self._held)) - self._granted
        if room > 0:
            self._granted += room
            self._generator.allow(room)

    def _num_admissible(self) -> int:
        """How many groups may be submitted now."""
        settings, places = self.settings, self.census
        batches = settings.schedule.round_batches(settings.k)
        waiting = places[Place.GRADING] + places[Place.IN_FLIGHT]
        outstanding = len(self._outstanding)
        if batches is not None:
            # A round is generated as a whole by the weights that the round before it made.
            begins = outstanding == 0 and self._pushed_version == self.version
            return batches * settings.num_prompts if begins else self._num_missing(waiting)
        if settings.k == 0:
            # One admission per batch, so that what is decoded together does not depend on timing.
            return self._num_missing(waiting)
        if settings.on_stale == "cap_admission" and self._oldest_on_its_way() + settings.k <= self.version:
            return 0
        if places[Place.BUFFERED] + places[Place.GRADING] >= self._ready_bound():
            return 0
        in_reach = -(-settings.slots // settings.group)
        queue = max(1, in_reach // 4)
        return min(
            settings.num_prompts * (settings.k + 1) - outstanding,
            max(in_reach, settings.num_prompts) + queue - places[Place.IN_FLIGHT],
        )

    def _oldest_on_its_way(self) -> int:
        """The oldest version of the groups in flight and in grading; the current one where there is none."""
        on_the_way = (group.oldest_version for group in self._outstanding.values() if group.place in (Place.IN_FLIGHT, Place.GRADING))
        return min(on_the_way, default=self.version)

    def _num_missing(self, waiting: int) -> int:
        """Groups that a batch lacks when all are graded; 0 while any is on its way or being trained on."""
        if waiting or self.census[Place.TRAINING]:
            return 0
        return max(0, self.settings.num_prompts - self.census[Place.BUFFERED])

    def _ready_bound(self) -> int:
        """Finished groups that may wait for the trainer."""
        batches = max(self.settings.ready_batches, self.settings.schedule.round_batches(self.settings.k) or 0)
        return batches * self.settings.num_prompts

    def _request(self, turn: Turn) -> Request:
        group = self._next_group
        self._next_group += 1
        self.num_submitted += 1
        self._outstanding[group] = _Outstanding(turn, self._pushed_version)
        self.census[Place.IN_FLIGHT] += 1
        return Request(group, self._prompts.prompts[turn.index], turn.epoch, self.settings.group)

    def _move(self, group: int, place: Place) -> None:
        """Move an outstanding group to another place, and keep the census."""
        outstanding = self._outstanding[group]
        self.census[outstanding.place] -= 1
        self.census[place] += 1
        outstanding.place = place

    async def _collect(self, tasks: asyncio.TaskGroup) -> None:
        """Take finished groups and have them graded, for ever; groups that are unknown or come twice are ignored."""
        while True:
            sampled = await self._generator.finished()
            if sampled.costs:
                self._journal.append(Spent(costs=sampled.costs))
            for group in sampled.groups:
                outstanding = self._outstanding.get(group.id)
                if outstanding is None or outstanding.place is not Place.IN_FLIGHT:
                    continue
                outstanding.oldest_version = group.first_version
                self._granted -= 1
                self._move(group.id, Place.GRADING)
                self._background.append(tasks.create_task(self._grade(group)))
            self._background = [task for task in self._background if not task.done()]

    async def _grade(self, group: Group) -> None:
        graded = await self._grader.grade(group)
        scores = [self._with_length(score, completion) for score, completion in zip(graded.scores, group.completions, strict=True)]
        group = group.scored(scores)
        self._journal.append(_told(group, costs=graded.costs))
        if self._keep_rollout is not None:
            self._keep_rollout(group)
        async with self._changed:
            self._outstanding[group.id].group = group
            self._move(group.id, Place.BUFFERED)
            refilled = next((rule for rule in self._taking_out(group) if rule.refill), None)
            if _has_failed(group):
                self._settle(group.id, Place.FAILED)
                self._check_patience([group])
            elif refilled is not None:
                self._settle(group.id, Place.FILTERED, by=refilled.name())
                self._check_patience([group])
            elif not any(self._taking_out(group)):
                self._fruitless = _Fruitless()
            self._admit()
            self._changed.notify_all()

    def _with_length(self, score: Score, completion: Completion) -> Score:
        value = self.settings.control.value(score, completion.token_ids.size)
        if value is None or value == score.value or score.value is None:
            return score
        return replace(score, value=value, parts={**score.parts, "grade": score.value, "length": value - score.value})

    # Training ----------------------------------------------------------------------------------------------------------

    async def _train(self) -> str:
        """Step after step, until there is a reason to end."""
        if self._resumed:
            # The generator has loaded the checkpoint's weights, but does not know their version.
            await self._push_between_steps()
        else:
            base = await self._evaluate()
            if self._inspect_base is not None:
                self._inspect_base(base)
        while True:
            reason = self._stop_reason or self._ends(self.step)
            if reason is not None:
                return reason
            batch = await self._next_batch()
            if not batch:
                return "the selector leaves out every training prompt"
            await self._take_step(batch)
            if self._evaluation_is_due() and self._last_evaluated != self._pushed_version:
                await self._evaluate()
            if self.step % self.settings.checkpoint_every == 0:
                await self._save()

    async def _next_batch(self) -> list[Group]:
        """The oldest P graded groups, as soon as the age rule lets a step be taken; fewer if no prompt is left."""
        async with self._changed:
            self._admit()
            while True:
                self._drop_stale()
                batch = self._oldest()
                complete = len(batch) == self.settings.num_prompts
                if complete and self._may_leave_behind(batch):
                    break
                # Room is not what stragglers should wait for.
                self._held = complete
                self._admit()
                if len(batch) == len(self._outstanding):
                    # Nothing is on its way although there is room: the prompts are out, and this is the last of them.
                    break
                await self._changed.wait()
            self._held = False
            for group in batch:
                self._move(group.id, Place.TRAINING)
            self._admit()
            return batch

    def _oldest(self) -> list[Group]:
        """Up to P buffered groups, those of the oldest first token first."""
        waiting = (outstanding.group for outstanding in self._outstanding.values() if outstanding.place is Place.BUFFERED)
        groups = sorted((group for group in waiting if group is not None), key=lambda group: (group.first_version, group.id))
        return groups[: self.settings.num_prompts]

    def _may_leave_behind(self, batch: Sequence[Group]) -> bool:
        """Whether the age rule permits a step on `batch`, given what it leaves in the buffer and in flight."""
        if self.settings.on_stale == "drop":
            return True
        taken = {group.id for group in batch}
        deadlines = [outstanding.oldest_version + self.settings.k for group, outstanding in self._outstanding.items() if group not in taken]
        return fits(deadlines, version=self.version, batch=self.settings.num_prompts)

    def _drop_stale(self) -> None:
        """With `on_stale = drop`, let go of finished groups that no step may train on any more."""
        if self.settings.on_stale != "drop":
            return
        for group, outstanding in list(self._outstanding.items()):
            if outstanding.place is Place.BUFFERED and self.version - outstanding.oldest_version > self.settings.k:
                self._settle(group, Place.DROPPED)

    async def _take_step(self, batch: Sequence[Group]) -> None:
        """Filter, train, push, and tell."""
        survivors = []
        filtered = {}
        for group in batch:
            rule = next((rule for rule in self._taking_out(group) if not rule.refill), None)
            if rule is None:
                survivors.append(self._masked(group))
            else:
                filtered[group.id] = rule.name()
        self.step += 1
        update = await self._trainer.train(Batch(self.step, tuple(survivors))) if survivors else Update(self.version, {})
        metrics, costs = dict(update.metrics), list(update.costs)
        self.version = update.version
        if self._pushes_now(len(batch)):
            pushes = await self._push()
            metrics |= _mismatch(*pushes)
            costs += [cost for push in pushes for cost in push.costs]
        metrics |= {"epoch": float(max(self._outstanding[group.id].turn.epoch for group in batch))}
        async with self._changed:
            for group in batch:
                by = filtered.get(group.id)
                self._settle(group.id, Place.TRAINED if by is None else Place.FILTERED, by=by)
            metrics["prompts_left_out"] = float(self._prompts.num_left_out())
            untold, self._untold = self._untold, Untold()
            self._journal.append(
                StepFinished(
                    step=self.step,
                    version=self.version,
                    trained=tuple(group.id for group in survivors),
                    filtered={name: tuple(groups) for name, groups in untold.filtered.items()},
                    dropped=tuple(untold.dropped),
                    failed=tuple(untold.failed),
                    metrics=metrics,
                    costs=tuple(costs),
                )
            )
            if survivors:
                self._fruitless = _Fruitless()
            else:
                self._check_patience(batch)
            if self.settings.k:
                # A synchronous run evaluates and saves before it begins the next batch.
                self._admit()

    def _taking_out(self, group: Group) -> Iterator[Filter]:
        """The filters that the next batch does without `group` for; masking all of it is one way."""
        for rule in self.settings.filters:
            if rule.takes_out(group, version=self.version) or all(rule.masks(completion) for completion in group.completions):
                yield rule

    def _masked(self, group: Group) -> Group:
        """`group` without trainable tokens in the completions that a filter masks."""
        masked = [any(rule.masks(completion) for rule in self.settings.filters) for completion in group.completions]
        if not any(masked):
            return group
        completions = [one.untrained() if is_masked else one for one, is_masked in zip(group.completions, masked, strict=True)]
        return replace(group, completions=tuple(completions))

    def _pushes_now(self, num_trained: int) -> bool:
        """Whether the weights go to the generators after this step."""
        if self._pushed_version == self.version:
            return False
        batches = self.settings.schedule.round_batches(self.settings.k)
        return batches is None or len(self._outstanding) == num_trained

    async def _push(self) -> tuple[Handover, Handover]:
        published = await self._trainer.publish_weights()
        taken = await self._generator.take_weights(self.version)
        self._pushed_version = self.version
        return published, taken

    async def _push_between_steps(self) -> None:
        """A push that no step tells of."""
        published, taken = await self._push()
        self._journal.append(Spent(costs=(*published.costs, *taken.costs)))

    def _settle(self, group: int, place: Place, *, by: str | None = None) -> None:
        """A group has come to its end: count it, and tell the prompt queue."""
        self._move(group, place)
        outstanding = self._outstanding.pop(group)
        counts = None
        if place in (Place.TRAINED, Place.FILTERED) and outstanding.group is not None:
            counts = _counts(outstanding.group)
        self._prompts.settle(outstanding.turn, counts=counts)
        if place is Place.FILTERED:
            self._untold.filtered.setdefault(str(by), []).append(group)
        elif place is Place.DROPPED:
            self._untold.dropped.append(group)
        elif place is Place.FAILED:
            self._untold.failed.append(group)

    def _check_patience(self, groups: Sequence[Group]) -> None:
        """Count groups that gave nothing to train on, and end a run that gets nothing else."""
        for group in groups:
            self._fruitless.add(group)
        if self._fruitless.num_groups >= self.settings.patience * self.settings.num_prompts:
            raise ScalerlError(self._fruitless.sentence(), where=f"step {self.step}", remedy=self._fruitless.remedy())

    # Evaluating, saving, ending ----------------------------------------------------------------------------------------

    def _evaluation_is_due(self) -> bool:
        return is_due(self.step, every_steps=self.settings.evaluate_every, early_growth=self.settings.evaluation_growth)

    async def _evaluate(self) -> list[Group]:
        """The graded held-out groups of the version that the generator uses, which stands still meanwhile.

        Each version is its requests' epoch, so the draws of two versions are independent: a fit takes the errors of evaluations for that.
        """
        version, samples = self._pushed_version, self.settings.evaluation_samples
        started_s = self._clock.now_s()
        sampled = await self._generator.evaluate(
            [Request(number, prompt, version, samples) for number, prompt in enumerate(self._held_out)]
        )
        graded = [await self._grader.grade(group) for group in sampled.groups]
        groups = [group.scored(grade.scores) for group, grade in zip(sampled.groups, graded, strict=True)]
        self._last_evaluated = version
        for number, (task, tasks_groups) in enumerate(_by_task(groups).items()):
            counts = [_counts(group) for group in tasks_groups]
            costs = (*sampled.costs, *(cost for grade in graded for cost in grade.costs)) if number == 0 else ()
            self._journal.append(
                Evaluated(
                    task=task,
                    version=version,
                    num_passed=sum(passed for passed, _ in counts),
                    num_graded=sum(total for _, total in counts),
                    blocked_s=self._clock.now_s() - started_s if number == 0 else 0.0,
                    costs=_merged(costs),
                )
            )
        return groups

    async def _save(self) -> None:
        """Write a checkpoint of everything up to this moment."""
        folder = self._store.begin(self.step)
        entry = self._journal.append(CheckpointStarted(step=self.step))
        state = LoopState(
            step=self.step,
            version=self.version,
            next_group=self._next_group,
            queue=self._prompts.state(),
            untold=self._untold,
            evaluated=self._last_evaluated,
            seq=entry.seq,
        )
        # Encoded before anything can change: while the trainer saves, groups come in and are settled.
        encoded = msgspec.json.encode(state)
        costs = await self._trainer.save(folder)
        self._store.commit(self.step, encoded)
        self._last_saved = self.step
        self._journal.append(Spent(costs=costs))

    async def _finish(self, reason: str) -> None:
        """Give up what is in flight, evaluate and save the last version, and tell the last costs."""
        self._generator.cancel(self._outstanding.keys())
        for group in list(self._outstanding):
            self._move(group, Place.CANCELLED)
            self._prompts.give_back(self._outstanding.pop(group).turn)
        if self._pushed_version != self.version:
            await self._push_between_steps()
        if self._last_evaluated != self.version:
            await self._evaluate()
        if self._last_saved != self.step:
            await self._save()
        costs = (*await self._generator.spent(), *await self._trainer.spent())
        self._journal.append(RunEnded(reason=reason, costs=costs))


def _has_failed(group: Group) -> bool:
    """Whether none of the completions could be graded."""
    return all(completion.score is None or completion.score.value is None for completion in group.completions)


def _values(group: Group) -> list[float]:
    scores = (completion.score for completion in group.completions)
    return [score.value for score in scores if score is not None and score.value is not None]


def _counts(group: Group) -> tuple[int, int]:
    """(passed, graded) completions."""
    verdicts = [completion.score.passed for completion in group.completions if completion.score is not None]
    return verdicts.count(True), len(verdicts) - verdicts.count(None)


def _by_task(groups: Sequence[Group]) -> Mapping[str, list[Group]]:
    tasks: dict[str, list[Group]] = {}
    for group in groups:
        tasks.setdefault(group.prompt.task, []).append(group)
    return tasks


def _mismatch(published: Handover, taken: Handover) -> dict[str, float | None]:
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


def _told(group: Group, *, costs: tuple[Cost, ...]) -> GroupFinished:
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


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group of tasks that failed together, told as if it had been alone."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
