"""The books of a simulated run, kept from outside: what the roles were asked, what the events say, and whether both agree.

They rely on nothing that the loop counts. What the surviving events say is a `Lineage`; a resume takes it back to its checkpoint.
A broken invariant is an AssertionError that says which.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scalerl.core.events import Entry
from scalerl.curriculum.filters import Filter
from scalerl.curriculum.filters.staleness import Staleness
from scalerl.pipeline.evaluation import is_due
from scalerl.pipeline.orchestrator import LoopSettings, LoopState, Orchestrator, Place
from scalerl.pipeline.prompt_queue import PromptQueue
from scalerl.pipeline.simulation.lineage import Lineage, Visit
from scalerl.pipeline.simulation.scenario import Scenario
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import CheckpointStarted, Evaluated, Event, GroupFinished, Restarted, Resumed, RunEnded, StepFinished
from scalerl.records.push import Push
from scalerl.records.roles import Request
from scalerl.records.rollout import Batch, Completion, Group, Outcome, Prompt, Score

if TYPE_CHECKING:
    from scalerl.pipeline.simulation.roles import Generator

HELD_OUT = [Prompt(f"held-out-{index}", f"task-{index % 2}", "", (1,), "") for index in range(3)]
_TASKS = {prompt.task for prompt in HELD_OUT}
_CANNOT_GO_ON = "the selector leaves out every training prompt"


class Books:
    """The books of one run through all its lives."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.events: list[Entry[Event]] = []
        self.ages: list[int] = []
        self.most_in_flight = self.most_waiting = 0
        self.given_up: set[int] = set()
        self._lineage = Lineage()
        self._captured: dict[int, Lineage] = {-1: Lineage()}
        """By the event that a checkpoint was captured at."""
        self._replaced: set[int] = set()
        """Versions whose evaluation was cut off by a death; that of a later version stands for it."""
        self._graded: dict[int, tuple[Group, list[Score]]] = {}
        """As sampled, and with which scores it ought to go on, by group."""
        self._groups: dict[int, Group] = {}
        """With these scores."""
        self._saved_step = -1
        self._num_durable = 0
        """Events that a loss of power leaves."""

    def begin_life(self, state: LoopState, *, orchestrator: Orchestrator, queue: PromptQueue, generator: Generator, now_s: float) -> None:
        """A life begins from the checkpoint of `state`."""
        self.orchestrator, self.queue, self.generator = orchestrator, queue, generator
        self._lineage = self._captured[state.seq].at_this_moment()
        if state.is_evaluating:
            self._replaced |= self._lineage.owed
            self._lineage.evaluating = None
        self._is_saved = state.seq >= 0
        self._last_step: int | None = None
        self._num_fruitless = 0
        self._is_fresh = state.seq < 0
        self._num_inspected = 0
        self._kept: set[int] = set()
        self._next_group, self._num_submitted = state.next_group, 0
        self._asked: set[Visit] = set()
        self._lost: set[int] = set()
        self._num_ungranted = 0
        self._published = self._pushed = state.version
        self._batch: tuple[int, ...] = ()
        self._trainer_is_busy = self._weights_are_taken = self._is_pushed = False
        self._handed_over: Push | None = None
        self._last_s = now_s
        self._grades: dict[tuple[int, str], list[bool | None]] = {}
        self._spent: Counter[tuple[str, str]] = Counter()
        self._booked: Counter[tuple[str, str]] = Counter()

    def end_life(self, reason: str) -> None:
        """A life has ended by itself."""
        assert self._booked == self._spent, f"costs that are in no event: {self._spent - self._booked}"
        lineage, last = self._lineage, self.events[-1].event
        assert isinstance(last, RunEnded), "the end of a run is its last event"
        assert last.reason == reason, "the reason that is told is the one that is returned"
        assert not any(self.orchestrator.census[place] for place in _UNSETTLED), "nothing is left on its way"
        assert self._saved_step == lineage.step, "the last step is in a checkpoint"
        assert self._num_inspected == self._is_fresh, "the base is looked at once"
        assert reason != _CANNOT_GO_ON or self.queue.take() is None, "there are prompts left"
        evaluated = {version for version, _ in lineage.evaluated}
        for version in lineage.owed | {0, lineage.version}:
            stands_for = version in self._replaced and any(other > version for other in evaluated)
            assert version in evaluated or stands_for, f"version {version} was not evaluated"

    def asked_to_stop(self) -> None:
        """The run ends after the step that it works on or waits for."""
        self._last_step = self._lineage.step + 1

    def gave_up(self) -> None:
        """The run ended because nothing was left to train on."""
        least = self.scenario.settings.patience * self.scenario.settings.num_prompts
        assert self._num_fruitless >= least, f"{self._num_fruitless} groups gave nothing to train on, of {least} that patience is for"

    def lose_events(self, chance: random.Random) -> None:
        """The power was lost: events since the last checkpoint may be gone."""
        del self.events[chance.randint(self._num_durable, len(self.events)) :]

    # What roles are asked ----------------------------------------------------------------------------------------------

    def check_places(self) -> None:
        """Every submitted group is in exactly one place."""
        census = self.orchestrator.census
        places = census.values()
        assert sum(places) == self.orchestrator.num_submitted == self._num_submitted, f"groups are lost or counted twice: {census}"
        assert min(places) >= 0, f"a place holds fewer than no groups: {census}"
        self.most_in_flight = max(self.most_in_flight, census[Place.IN_FLIGHT])
        self.most_waiting = max(self.most_waiting, census[Place.BUFFERED])

    def check_flight(self) -> None:
        """What is in flight is where the generator has it; to be asked when every task waits."""
        in_flight, held = self.orchestrator.census[Place.IN_FLIGHT], self.generator.num_held
        assert self._lost or in_flight == held, f"the loop has {in_flight} groups in flight, the generator {held}"

    def submitted(self, requests: Sequence[Request]) -> None:
        """The generator was given requests."""
        admitted = set()
        for request in requests:
            assert request.num_completions == self.scenario.settings.group, "a group is of the size that is set"
            visit = (request.epoch, request.prompt.id)
            if request.group in self._lost:
                assert visit in self._asked, "what is asked for again is what was lost"
                self._lost.remove(request.group)
                continue
            assert request.group == self._next_group, "groups are numbered in order"
            assert visit not in self._asked | self._lineage.visits, f"{visit} is asked for twice"
            self._next_group += 1
            self._num_submitted += 1
            self._asked.add(visit)
            admitted.add(request.group)
        if admitted:
            self._check_admission(admitted)

    def _check_admission(self, admitted: set[int]) -> None:
        """No more is on its way than can be trained in time."""
        settings, census = self.scenario.settings, self.orchestrator.census
        rounds = _rounds(settings)
        bound = settings.num_prompts * (settings.k + 1 if rounds is None else rounds)
        assert sum(census[place] for place in _UNSETTLED) <= bound, f"more than {bound} groups are on their way"
        if settings.on_stale == "cap_admission" and rounds is None and not self._lost:
            others = [one for number, one in self.orchestrator._outstanding.items() if number not in admitted]
            oldest = min((one.oldest_version for one in others if one.place in (Place.IN_FLIGHT, Place.GRADING)), default=None)
            assert oldest is None or self._lineage.version < oldest + settings.k, f"groups are admitted beside one of version {oldest}"

    def lost(self, groups: Iterable[int], *, num_granted: int = 0) -> None:
        """The generator died over these groups, with room for so many."""
        self._lost |= set(groups)
        self._num_ungranted = max(self._num_ungranted, num_granted)
        self._replaced |= self._lineage.owed

    def allowed(self, num_more: int, *, num_granted: int) -> None:
        """The generator is given room for some more groups, so many in all."""
        settings, census = self.scenario.settings, self.orchestrator.census
        bound = settings.num_prompts * max(settings.ready_batches, _rounds(settings) or 0)
        waiting = census[Place.BUFFERED] + census[Place.GRADING]
        for_straggler = num_granted == 1 and not census[Place.TRAINING]
        is_given_again, self._num_ungranted = num_granted <= self._num_ungranted, 0
        is_exempt = not num_more or for_straggler or is_given_again
        assert is_exempt or waiting + num_granted <= bound, f"{waiting} groups wait and {num_granted} more may, of {bound}"

    @contextmanager
    def training(self, batch: Batch, *, version: int) -> Iterator[None]:
        """The trainer is given a batch to update `version`."""
        settings = self.scenario.settings
        ages = [group.age(version) for group in batch.groups]
        assert batch.groups, "a batch without groups is no update"
        assert all(0 <= age <= settings.k for age in ages), f"ages {ages} are beyond k = {settings.k}"
        assert batch.step == self._lineage.step + 1, "steps are numbered in order"
        rounds = _rounds(settings)
        assert 0 <= version - self._pushed < (rounds or 1), f"version {version} is trained on and {self._pushed} generates"
        outstanding = self.orchestrator._outstanding
        taken, left = (
            [_key(one.group) for one in outstanding.values() if one.place is place] for place in (Place.TRAINING, Place.BUFFERED)
        )
        assert max(taken) < min(left, default=(version + 1, 0)), "an older group is left behind"
        assert [_key(group) for group in batch.groups] == sorted(map(_key, batch.groups)), "groups train oldest first"
        if len(taken) != settings.num_prompts:
            assert len(taken) < settings.num_prompts, "a batch is no larger than is set"
            assert len(outstanding) == len(taken), "a batch is not full although groups are on their way"
            assert self._next_prompt() is None, "a batch is not full although there are prompts"
        for group in batch.groups:
            self._check_trained(group, version=version)
        self.ages += ages
        self._batch = tuple(group.id for group in batch.groups)
        with self._trainer_at_work():
            yield

    def _check_trained(self, group: Group, *, version: int) -> None:
        """What the trainer is given is what was sampled and graded, but for the filters."""
        filters = self.scenario.settings.filters
        made = self._groups[group.id]
        masks = [any(rule.masks(completion) for rule in filters) for completion in made.completions]
        assert not any(rule.takes_out(made, version=version) for rule in filters), "a group is trained on that a filter takes out"
        assert not all(masks), "a group without a trainable token is no group"
        for completion, original, masked in zip(group.completions, made.completions, masks, strict=True):
            is_right = not completion.trainable.any() if masked else completion.trainable is original.trainable
            assert is_right, "what a filter masks, and that alone, is not trained on"
            assert completion.score == original.score, f"a completion has the score {completion.score}, not {original.score}"

    @contextmanager
    def publishing(self, version: int) -> Iterator[None]:
        """The trainer publishes its weights."""
        with self._trainer_at_work():
            yield
        self._published = version

    @contextmanager
    def saving(self) -> Iterator[None]:
        """The trainer writes a checkpoint."""
        with self._trainer_at_work():
            yield

    @contextmanager
    def taking_weights(self, version: int) -> Iterator[None]:
        """The generator takes the published weights."""
        assert not self._weights_are_taken, "one push at a time"
        assert version == self._published, f"version {version} is pushed and {self._published} is published"
        settings, census = self.scenario.settings, self.orchestrator.census
        if version != self._pushed and _rounds(settings) is not None:
            waiting = sum(census[place] for place in (Place.IN_FLIGHT, Place.GRADING, Place.BUFFERED))
            assert not waiting, f"weights change in the middle of a round: {waiting} groups are not trained"
        self._weights_are_taken = True
        try:
            yield
        finally:
            self._weights_are_taken = False
        if version != self._pushed:
            self._pushed, self._is_pushed = version, True

    def handed_over(self, push: Push) -> None:
        """The generator tells what the last push met."""
        self._handed_over = push

    def evaluation_begun(self, requests: Sequence[Request], *, version: int) -> None:
        """The generator begins to sample the held-out prompts by `version`."""
        settings = self.scenario.settings
        asked = [(request.group, request.prompt, request.epoch, request.num_completions) for request in requests]
        due = [(number, prompt, version, settings.evaluation_samples) for number, prompt in enumerate(HELD_OUT)]
        assert asked == due, f"version {version} is evaluated by other requests than are due: {asked}"
        is_told = any(told == version for told, _ in self._lineage.evaluated)
        assert not is_told or self.generator.is_lost, f"version {version} is evaluated twice"
        self._lineage.evaluating = version
        self._grades = {}

    def graded(self, group: Group, scores: Sequence[Score]) -> None:
        """A grader has an answer."""
        if group.prompt in HELD_OUT:
            self._grades.setdefault((group.first_version, group.prompt.task), []).extend(score.passed for score in scores)
        else:
            pairs = zip(scores, group.completions, strict=True)
            self._graded[group.id] = (group, [self._with_length(score, _num_tokens(completion)) for score, completion in pairs])

    def _with_length(self, score: Score, num_tokens: int) -> Score:
        value = self.scenario.settings.control.value(score, num_tokens)
        if value is None or score.value is None or value == score.value:
            return score
        return Score(value, score.passed, score.outcome, {**score.parts, "grade": score.value, "length": value - score.value})

    def spent(self, activity: Activity, detail: str) -> Cost:
        """A role has spent something, which has to turn up in an event; without `detail` it is told from all others."""
        key = (str(activity), detail or str(self._spent.total()))
        self._spent[key] += 1
        return Cost("simulated", activity, tokens=1, detail=key[1])

    def rollout_kept(self, group: Group) -> None:
        """A graded group is handed over to be kept."""
        assert group.id in self._lineage.finished, "a group is kept when it is told"
        sampled, scores = self._graded[group.id]
        assert [one.score for one in group.completions] == scores, "a group is kept with its scores"
        assert all(one.token_ids is same.token_ids for one, same in zip(group.completions, sampled.completions, strict=True)), "as sampled"
        self._groups[group.id] = group
        self._num_fruitless += group.has_failed or any(
            isinstance(rule, Staleness) or _takes_out(rule, group, version=self._lineage.version) for rule in self.scenario.settings.filters
        )
        assert group.id not in self._kept, f"group {group.id} is kept twice"
        self._kept.add(group.id)

    def base_inspected(self, groups: Sequence[Group]) -> None:
        """The graded held-out groups of the base are looked at."""
        assert self._is_fresh, "only a run that begins looks at its base"
        assert [group.prompt for group in groups] == HELD_OUT, "the base is looked at as a whole"
        passed = [one.score.passed for group in groups for one in group.completions if one.score is not None]
        assert Counter(passed) == Counter(grade for grades in self._grades.values() for grade in grades), "with its grades"
        self._num_inspected += 1

    @contextmanager
    def _trainer_at_work(self) -> Iterator[None]:
        assert not self._trainer_is_busy, "the trainer does one thing at a time"
        self._trainer_is_busy = True
        try:
            yield
        finally:
            self._trainer_is_busy = False

    # What is told ------------------------------------------------------------------------------------------------------

    def append(self, event: Event, *, time_s: float) -> Entry[Event]:
        """Keep an event, after a look at it."""
        self._check_told(event, time_s=time_s)
        for cost in event.costs:
            key = (str(cost.activity), cost.detail)
            self._booked[key] += cost.tokens
            assert self._booked[key] <= self._spent[key], f"a cost is booked twice: {key}"
        entry: Entry[Event] = Entry(len(self.events), time_s, event)
        self.events.append(entry)
        if isinstance(event, CheckpointStarted):
            assert event.step == self._lineage.step, "a checkpoint is of the step that was told"
            self._captured[entry.seq] = self._lineage.at_this_moment()
        return entry

    def _check_told(self, event: Event, *, time_s: float) -> None:
        match event:
            case GroupFinished():
                self._finished(event)
            case StepFinished():
                self._step_finished(event)
                self._last_s = time_s
            case Evaluated():
                self._evaluated(event, time_s=time_s)
            case Resumed():
                assert event.from_seq in self._captured, "a run goes on from a checkpoint"
            case Restarted():
                assert event.groups == tuple(sorted(event.groups)), "what is generated again is in order"
            case _:
                pass

    def _finished(self, event: GroupFinished) -> None:
        """A graded group is told as it was sampled and graded."""
        group, scores = self._graded[event.group]
        completions = group.completions
        expected = GroupFinished(
            group=group.id,
            prompt_id=group.prompt.id,
            epoch=group.epoch,
            task=group.prompt.task,
            num_tokens=tuple(map(_num_tokens, completions)),
            values=tuple(score.value for score in scores),
            passed=tuple(score.passed for score in scores),
            finished=tuple(one.finished for one in completions),
            first_versions=tuple(one.version_runs[0][0] for one in completions),
            last_versions=tuple(one.version_runs[-1][0] for one in completions),
            num_inserted=event.num_inserted,
            outcomes=event.outcomes,
            costs=event.costs,
        )
        assert event == expected, f"{event} is told of {expected}"
        inserted = [one.num_inserted for one in completions]
        assert list(event.num_inserted) == (inserted if any(inserted) else []), "inserted tokens are counted, where there are any"
        outcomes = [score.outcome for score in scores]
        assert list(event.outcomes) == ([] if set(outcomes) == {Outcome.GRADED} else outcomes), "outcomes are told, where they differ"
        assert event.group not in self._lineage.finished, f"group {event.group} is finished twice"
        self._lineage.finished[event.group] = event

    def _step_finished(self, event: StepFinished) -> None:
        lineage, settings = self._lineage, self.scenario.settings
        assert event.step == lineage.step + 1, f"step {event.step} follows step {lineage.step}"
        assert self._last_step is None or event.step <= self._last_step, f"step {event.step} is taken after a wish to stop"
        assert event.trained == self._batch, f"{event.trained} are told as trained, and {self._batch} were"
        assert event.version == lineage.version + bool(event.trained), f"version {event.version} follows version {lineage.version}"
        rules = {rule.name(): rule for rule in settings.filters}
        for name, groups in event.filtered.items():
            for group in (self._groups[number] for number in groups):
                assert _takes_out(rules[name], group, version=lineage.version), f"{name} does not take out group {group.id}"
                assert not group.has_failed or not rules[name].refill, f"group {group.id} has failed and is told as filtered"
        for group in (self._groups[number] for number in event.dropped):
            assert settings.on_stale == "drop", "only on_stale = drop drops"
            assert group.age(lineage.version) > settings.k, f"group {group.id} is dropped at an age of {group.age(lineage.version)}"
        assert all(self._groups[number].has_failed for number in event.failed), "what is told as failed could not be graded"
        filtered = [number for groups in event.filtered.values() for number in groups]
        self._check_metrics(event)
        lineage.step, lineage.version = event.step, event.version
        for number in (*event.trained, *filtered, *event.dropped, *event.failed):
            lineage.settle(number)
        for number in (*event.trained, *filtered):
            lineage.count(number)
        self._batch = ()
        if is_due(event.step, every_steps=settings.evaluate_every, early_growth=settings.evaluation_growth):
            # What a lost generator cannot take falls due when another has taken it.
            lineage.owed.add(lineage.version if self.generator.is_lost and not _rounds(settings) else self._pushed)

    def _check_metrics(self, event: StepFinished) -> None:
        """What a step measured is told: the trainer's, the epoch of its batch, how far both sides of its push differ."""
        refilled = {rule.name() for rule in self.scenario.settings.filters if rule.refill}
        batch = (*event.trained, *(number for name, groups in event.filtered.items() if name not in refilled for number in groups))
        expected = {
            "epoch": float(max(self._lineage.finished[number].epoch for number in batch)),
            "prompts_left_out": float(self.queue.num_left_out()),
        }
        if event.trained:
            expected["loss"] = float(event.version)
        if self._is_pushed and is_probed(event.version):
            expected |= {"mismatch_mean": 0.02, "mismatch_max": 0.03}
        told = {name: None if value is None else round(value, 6) for name, value in event.metrics.items()}
        assert told == expected or self.generator.is_lost, f"{told} is told, and {expected} was measured"
        push = self._handed_over if self._is_pushed else None
        assert event.push == push or self.generator.is_lost, f"{event.push} is told of a push that met {push}"
        self._is_pushed = False

    def _evaluated(self, event: Evaluated, *, time_s: float) -> None:
        lineage = self._lineage
        assert event.version == lineage.evaluating or (event.version, event.task) not in lineage.evaluated, "evaluated twice"
        grades = self._grades.get((event.version, event.task))
        assert grades is not None, f"version {event.version} is told as evaluated, and {lineage.evaluating} was"
        told = (event.num_passed, event.num_graded)
        assert told == (grades.count(True), len(grades) - grades.count(None)), f"{told} are told of {grades}"
        assert 0.0 <= event.blocked_s <= time_s - self._last_s + 1e-6, "training waits for an evaluation after a step, and takes none"
        is_first = all(version != event.version for version, _ in lineage.evaluated)
        assert bool(event.costs) == is_first, "the first task of an evaluation tells what the whole of it cost"
        assert is_first or not event.blocked_s, "and how long training waited for it"
        lineage.evaluated.add((event.version, event.task))
        if {task for version, task in lineage.evaluated if version == event.version} == _TASKS:
            lineage.evaluating = None

    # What a checkpoint holds -------------------------------------------------------------------------------------------

    def committed(self, state: LoopState) -> None:
        """What the events say up to a checkpoint folds to the state that it holds."""
        lineage = self._captured[state.seq].at_this_moment()
        assert (state.step, state.version) == (lineage.step, lineage.version), "a checkpoint is of the step and version that were told"
        is_evaluating = lineage.evaluating is not None
        assert state.is_evaluating == is_evaluating or self.generator.is_lost, "a checkpoint knows whether an evaluation is on its way"
        assert (state.evaluated, next(iter(_TASKS))) in lineage.evaluated, f"version {state.evaluated} was not evaluated"
        lineage.step += 1
        untold = [number for groups in state.untold.filtered.values() for number in groups]
        for number in (*untold, *state.untold.dropped, *state.untold.failed):
            lineage.settle(number)
        for number in untold:
            lineage.count(number)
        lineage.check_queue(state.queue, self.scenario)
        assert state.step != self._saved_step or not self._is_saved, f"step {state.step} is saved twice"
        self._saved_step, self._is_saved, self._num_durable = state.step, True, len(self.events)

    def _next_prompt(self) -> object:
        """What a queue in the state of the loop's would hand out."""
        return PromptQueue(self.queue.prompts, self.scenario.selector, seed=self.scenario.seed, state=self.queue.state())._next()


def is_probed(version: int) -> bool:
    """Whether both sides score the probe under `version`; they differ by 1, 2 and 3 hundredths of a nat."""
    return version % 5 != 4


def _rounds(settings: LoopSettings) -> int | None:
    """Batches that are generated before the weights change; None if they change after every step."""
    return settings.schedule.round_batches(settings.k)


_UNSETTLED = (Place.IN_FLIGHT, Place.GRADING, Place.BUFFERED, Place.TRAINING)


def _key(group: Group | None) -> tuple[int, int]:
    """What groups are sorted by: the version of the oldest first token."""
    assert group is not None, "a group is there when it is buffered"
    return (min(completion.version_runs[0][0] for completion in group.completions), group.id)


def _num_tokens(completion: Completion) -> int:
    return sum(number for _, number in completion.version_runs)


def _takes_out(rule: Filter, group: Group, *, version: int) -> bool:
    """Whether a batch that updates `version` does without `group`; masking all of it is one way."""
    return rule.takes_out(group, version=version) or all(rule.masks(completion) for completion in group.completions)
