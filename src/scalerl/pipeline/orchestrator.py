"""The orchestrator: the one training loop, plain asyncio on whatever clock, roles and store it is given.

    async with TaskGroup:
        collect:  generator.finished() -> grader.grade() -> buffer, or a finished evaluation -> grader.grade() -> event
        train:    wait for a batch that the age rule permits -> filters -> trainer.train -> push -> begin to evaluate -> checkpoint

What may be in flight follows from three bounds, applied after every change by `_admit`: the age rule (no more than
P (k + 1) groups are outstanding), the generator's slots, and for a synchronous run one batch at a time. How many finished
groups may wait is a bound of its own (`ready_batches`): the generator is granted room for them and stands still without.

Held-out prompts are sampled beside the training ones, by the weights in use when their evaluation began. Training waits for
them where it must (the base, the last version, k = 0) and where the next evaluation falls due before one has ended.

A generator that is lost is replaced by another, which takes the latest weights and generates what was in flight anew.

At every moment and for every group: submitted = in flight + grading + buffered + training + trained + filtered + dropped
+ failed + cancelled. A simulation checks this at every event (see simulation/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Literal, Protocol

import msgspec

from scalerl.core.clock import Clock
from scalerl.core.errors import LostRoleError, ScalerlError
from scalerl.core.events import Entry
from scalerl.curriculum.filters import Filter
from scalerl.objective.length_controls import LengthControl
from scalerl.pipeline.buffer import fits
from scalerl.pipeline.evaluation import is_due
from scalerl.pipeline.patience import Fruitless
from scalerl.pipeline.prompt_queue import PromptQueue, QueueState, Turn
from scalerl.pipeline.schedules import Schedule
from scalerl.pipeline.telling import evaluations, group_finished, mismatch
from scalerl.records.cost import Cost
from scalerl.records.events import CheckpointStarted, Event, Restarted, RunEnded, Spent, StepFinished
from scalerl.records.roles import Generator, Grader, Handover, Request, Store, Trainer, Update
from scalerl.records.rollout import Batch, Completion, Group, Prompt, Score

OnStale = Literal["hold", "drop", "cap_admission"]
Restart = Callable[[LostRoleError], Awaitable[tuple[Cost, ...]]]
"""Puts another generator in the place of one that is lost; raises what ends the run where there may be no more."""


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
    is_evaluating: bool = False
    """Whether an evaluation had not ended: a run that goes on from here evaluates its own version in place of that."""
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
class _Evaluation:
    """An evaluation on its way."""

    has_come: bool = False
    """Whether the generator is done with it."""
    groups: list[Group] = field(default_factory=list)
    """Graded, when it has ended."""
    waited_since_s: float | None = None
    """Since when training waits for it."""


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
        restart: Restart | None = None,
        state: LoopState | None = None,
    ) -> None:
        """
        Args:
            ends: the reason to end after a step, if there is one: the budget is spent, an alarm stops the run.
            inspect_base: looks at the graded held-out groups of the base, and raises where RL cannot be expected to work.
            keep_rollout: takes every graded training group.
            restart: replaces a generator that is lost; without it such a loss ends the run.
            state: of the checkpoint that the roles were started from.
        """
        assert held_out, "there is something to evaluate"
        state = LoopState() if state is None else state
        self.settings = settings
        self.step, self.version = state.step, state.version
        self.census: dict[Place, int] = dict.fromkeys(Place, 0)
        self.num_submitted = 0
        self._resumed = state.seq >= 0
        self._next_group = state.next_group
        self._pushed_version = state.version
        self._published_version: int | None = None
        self._handing_over = asyncio.Lock()
        self._prompts = prompts
        self._held_out = held_out
        self._generator, self._grader, self._trainer, self._store = generator, grader, trainer, store
        self._journal = journal
        self._clock = clock
        self._ends = ends
        self._inspect_base = inspect_base
        self._keep_rollout = keep_rollout
        self._restart = restart
        self._num_restarts = 0
        self._is_restarting = False
        self._lost: ScalerlError | None = None
        self._outstanding: dict[int, _Outstanding] = {}
        self._untold = state.untold
        self._has_begun = False
        self._granted = 0
        self._held = False
        self._fruitless = Fruitless()
        self._changed = asyncio.Condition()
        self._background: list[asyncio.Task[None]] = []
        self._ending = False
        self._last_evaluated: int | None = state.evaluated
        self._evaluation: _Evaluation | None = None
        self._owes_evaluation = state.is_evaluating
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
                collecting = tasks.create_task(self._collect(tasks))
                try:
                    reason = await self._train()
                    await self._finish(reason)
                except ScalerlError as error:
                    # Without a generator there is nothing to train on, but what was trained is not lost.
                    if error is self._lost and self.step and self._last_saved != self.step:
                        await self._save()
                    raise
                collecting.cancel()
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        return reason

    # Generating --------------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Submit as many prompts as may be in flight, and grant room for as many finished groups as may wait."""
        if not self._has_begun or self._ending or self._is_restarting:
            return
        turns: list[Turn] = []
        num_admissible = self._num_admissible()
        while len(turns) < num_admissible and (turn := self._prompts.take()) is not None:
            turns.append(turn)
        if turns:
            self._generator.submit([self._begun(turn) for turn in turns])
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
            # One admission per batch and none beside an evaluation, so that what is decoded together does not depend on timing.
            return 0 if self._evaluation is not None else self._num_missing(waiting)
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

    def _begun(self, turn: Turn) -> Request:
        """The request for a new group."""
        group = self._next_group
        self._next_group += 1
        self.num_submitted += 1
        self._outstanding[group] = _Outstanding(turn, self._pushed_version)
        self.census[Place.IN_FLIGHT] += 1
        return self._request(group)

    def _request(self, group: int) -> Request:
        turn = self._outstanding[group].turn
        return Request(group, self._prompts.prompts[turn.index], turn.epoch, self.settings.group)

    def _move(self, group: int, place: Place) -> None:
        """Move an outstanding group to another place, and keep the census."""
        outstanding = self._outstanding[group]
        self.census[outstanding.place] -= 1
        self.census[place] += 1
        outstanding.place = place

    async def _collect(self, tasks: asyncio.TaskGroup) -> None:
        """Take what is finished and have it graded, as long as there is a generator; what is unknown or comes twice is ignored."""
        while self._lost is None:
            try:
                sampled = await self._generator.finished()
            except LostRoleError as loss:
                await self._replace_generator(loss)
                continue
            if sampled.costs:
                self._journal.append(Spent(costs=sampled.costs))
            evaluation = self._evaluation
            if sampled.evaluated and evaluation is not None and not evaluation.has_come and self._is_new(sampled.evaluated):
                evaluation.has_come = True
                self._background.append(tasks.create_task(self._tell_evaluation(evaluation, sampled.evaluated)))
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
        self._journal.append(group_finished(group, costs=graded.costs))
        if self._keep_rollout is not None:
            self._keep_rollout(group)
        async with self._changed:
            self._outstanding[group.id].group = group
            self._move(group.id, Place.BUFFERED)
            refilled = next((rule for rule in self._taking_out(group) if rule.refill), None)
            if group.has_failed:
                self._settle(group.id, Place.FAILED)
                self._check_patience([group])
            elif refilled is not None:
                self._settle(group.id, Place.FILTERED, by=refilled.name())
                self._check_patience([group])
            elif not any(self._taking_out(group)):
                self._fruitless = Fruitless()
            self._admit()
            self._changed.notify_all()

    async def _replace_generator(self, loss: LostRoleError) -> None:
        """Put another generator in the place of the lost one, and have it begin anew what that had not finished."""
        self._is_restarting = True
        try:
            costs = await self._restarted(loss)
        except ScalerlError as error:
            # Told where the run stands between two steps, so that they can be saved.
            self._lost = error
        else:
            self._begin_anew()
            self._journal.append(Restarted(role="generator", reason=loss.what, groups=tuple(self._in_flight()), costs=costs))
            self._num_restarts += 1
        self._is_restarting = False
        async with self._changed:
            self._admit()
            self._changed.notify_all()

    async def _restarted(self, loss: LostRoleError) -> tuple[Cost, ...]:
        """Start generators until one lives and has the latest weights; returns what taking them cost."""
        if self._restart is None:
            raise loss
        while True:
            try:
                # Told at once: the run may end before the new one is ready, or with this one lost as well.
                self._journal.append(Spent(costs=await self._restart(loss)))
                if self._published_version is None:
                    return ()
                async with self._handing_over:
                    taken = await self._generator.take_weights(self._published_version)
            except LostRoleError as another:
                loss = another
                continue
            self._pushed_version = taken.version
            return taken.costs

    def _begin_anew(self) -> None:
        """Ask a new generator for everything that the one before it was asked for and had not finished."""
        in_flight = self._in_flight()
        for group in in_flight:
            self._outstanding[group].oldest_version = self._pushed_version
        self._generator.submit([self._request(group) for group in in_flight])
        self._generator.allow(self._granted)
        if self._evaluation is not None and not self._evaluation.has_come:
            if self._evaluation.waited_since_s is not None:
                # What training waited for until now was the lost generator, whose seconds are told as lost.
                self._evaluation.waited_since_s = self._clock.now_s()
            self._request_evaluation()

    def _in_flight(self) -> list[int]:
        """The groups that the generator has, in the order in which they were submitted."""
        return [group for group, outstanding in self._outstanding.items() if outstanding.place is Place.IN_FLIGHT]

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
            if self._owes_evaluation:
                await self._evaluate()
        else:
            base = await self._evaluated()
            if self._inspect_base is not None:
                self._inspect_base(base)
        # Until here a generator may decode under another version than its own, or one that training is not to begin from.
        self._has_begun = True
        while True:
            reason = self._stop_reason or self._ends(self.step)
            if reason is not None:
                return reason
            batch = await self._next_batch()
            if not batch:
                return "the selector leaves out every training prompt"
            await self._take_step(batch)
            self._check_generator()
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
                if len(batch) == len(self._outstanding) and not self._is_restarting:
                    # Nothing is on its way although there is room: the prompts are out, and this is the last of them.
                    break
                self._check_generator()
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
        metrics, costs, push = dict(update.metrics), list(update.costs), None
        self.version = update.version
        if self._pushes_now(len(batch)):
            published, taken = await self._push()
            costs += published.costs
            if taken is not None:
                push = taken.push
                metrics |= mismatch(published, taken)
                costs += taken.costs
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
                    push=push,
                    costs=tuple(costs),
                )
            )
            if survivors:
                self._fruitless = Fruitless()
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

    async def _push(self) -> tuple[Handover, Handover | None]:
        """Hand the weights over; what the trainer says of it, and the generator, unless that is lost for good."""
        async with self._handing_over:
            published = await self._trainer.publish_weights()
            self._published_version = self.version
        while self._lost is None:
            num_restarts = self._num_restarts
            try:
                async with self._handing_over:
                    taken = await self._generator.take_weights(self.version)
            except LostRoleError:
                await self._until(partial(self._has_restarted, since=num_restarts))
            else:
                self._pushed_version = self.version
                return published, taken
        return published, None

    async def _push_between_steps(self) -> None:
        """A push that no step tells of."""
        published, taken = await self._push()
        self._journal.append(Spent(costs=published.costs if taken is None else published.costs + taken.costs))

    def _has_restarted(self, *, since: int) -> bool:
        """Whether there is another generator now than after `since` restarts, or there will be none."""
        return self._num_restarts > since or self._lost is not None

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    def _check_generator(self) -> None:
        """Between two steps: end the run if it has no generator any more."""
        if self._lost is not None:
            raise self._lost

    def _settle(self, group: int, place: Place, *, by: str | None = None) -> None:
        """A group has come to its end: count it, and tell the prompt queue."""
        self._move(group, place)
        outstanding = self._outstanding.pop(group)
        counts = None
        if place in (Place.TRAINED, Place.FILTERED) and outstanding.group is not None:
            counts = outstanding.group.tally
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

    async def _evaluate(self) -> None:
        """Begin to evaluate the version that the generator uses, once the evaluation before has ended; wait for it if k = 0."""
        await self._evaluation_ended()
        if self._last_evaluated == self._pushed_version:
            # It was the same version, after a step without update, or a new generator has evaluated this one in its place.
            return
        if self.settings.k:
            self._begin_evaluation()
        else:
            await self._evaluated()

    async def _evaluated(self) -> Sequence[Group]:
        """The graded held-out groups of the version that the generator uses."""
        return await self._ended(self._begin_evaluation())

    def _begin_evaluation(self) -> _Evaluation:
        self._evaluation = _Evaluation()
        if not self._is_restarting:
            # A new generator is asked as soon as it has the weights.
            self._request_evaluation()
        return self._evaluation

    def _request_evaluation(self) -> None:
        """Have the held-out prompts sampled.

        Each version is its requests' epoch, so the draws of two versions are independent: a fit takes the errors of evaluations for that.
        """
        version, samples = self._pushed_version, self.settings.evaluation_samples
        self._generator.begin_evaluation([Request(number, prompt, version, samples) for number, prompt in enumerate(self._held_out)])

    async def _evaluation_ended(self) -> None:
        if self._evaluation is not None:
            await self._ended(self._evaluation)

    async def _ended(self, evaluation: _Evaluation) -> Sequence[Group]:
        """Wait for an evaluation while training stands still; returns its graded groups."""
        evaluation.waited_since_s = self._clock.now_s()
        await self._until(lambda: self._evaluation is not evaluation or self._lost is not None)
        if self._evaluation is evaluation:
            self._check_generator()
        return evaluation.groups

    def _is_new(self, evaluated: Sequence[Group]) -> bool:
        """Whether held-out groups are of a version later than any that was told: others come twice."""
        return self._last_evaluated is None or evaluated[0].first_version > self._last_evaluated

    async def _tell_evaluation(self, evaluation: _Evaluation, sampled: Sequence[Group]) -> None:
        """Grade the held-out groups of one version, and tell how many passed."""
        costs: list[Cost] = []
        for group in sampled:
            graded = await self._grader.grade(group)
            evaluation.groups.append(group.scored(graded.scores))
            costs += graded.costs
            # A grader in this process does not let go of the loop, and there may be thousands of groups.
            await asyncio.sleep(0)
        blocked_s = 0.0 if evaluation.waited_since_s is None else self._clock.now_s() - evaluation.waited_since_s
        # At one moment with the events: a checkpoint is captured before both or after both.
        self._last_evaluated = version = sampled[0].first_version
        self._evaluation = None
        for event in evaluations(evaluation.groups, version=version, blocked_s=blocked_s, costs=costs):
            self._journal.append(event)
        async with self._changed:
            self._changed.notify_all()

    async def _save(self) -> None:
        """Write a checkpoint of everything up to this moment."""
        # Whether there is a generator to evaluate with is part of the state.
        await self._until(lambda: not self._is_restarting)
        folder = self._store.begin(self.step)
        entry = self._journal.append(CheckpointStarted(step=self.step))
        state = LoopState(
            step=self.step,
            version=self.version,
            next_group=self._next_group,
            queue=self._prompts.state(),
            untold=self._untold,
            evaluated=self._last_evaluated,
            # One that falls due cannot begin without a generator.
            is_evaluating=self._evaluation is not None or (self._lost is not None and self._evaluation_is_due()),
            seq=entry.seq,
        )
        # Encoded before anything can change: while the trainer saves, groups come in and are settled.
        encoded = msgspec.json.encode(state)
        costs = await self._trainer.save(folder)
        # A new generator may be loading one of the checkpoints that this one replaces.
        await self._until(lambda: not self._is_restarting)
        self._store.commit(self.step, encoded)
        self._last_saved = self.step
        self._journal.append(Spent(costs=costs))

    async def _finish(self, reason: str) -> None:
        """Give up what is in flight, evaluate and save the last version, and tell the last costs."""
        self._ending = True
        await self._evaluation_ended()
        for task in self._background:
            task.cancel()
        self._generator.cancel(self._outstanding.keys())
        for group in list(self._outstanding):
            self._move(group, Place.CANCELLED)
            self._prompts.give_back(self._outstanding.pop(group).turn)
        if self._pushed_version != self.version:
            await self._push_between_steps()
        if self._last_evaluated != self.version:
            await self._evaluated()
        if self._last_saved != self.step:
            await self._save()
        costs = await self._trainer.spent()
        with suppress(LostRoleError):
            costs += await self._generator.spent()
        self._journal.append(RunEnded(reason=reason, costs=costs))


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group of tasks that failed together, told as if it had been alone."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
