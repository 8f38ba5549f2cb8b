"""The pipeline on a virtual clock: the same orchestrator with roles that only take time, and that fail as they are told.

    report = simulate(Scenario(seed=7, num_steps=20, num_crashes=2))

Time jumps from timer to timer, so a run of hours takes milliseconds, and a seed replays exactly. At every event the
census must add up and no trained group may be older than k; at the end every cost that a role told is in an event.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from scalerl.core.events import Entry
from scalerl.curriculum.selectors import Selector
from scalerl.pipeline.orchestrator import LoopSettings, LoopState, Orchestrator, Place
from scalerl.pipeline.prompt_queue import PromptQueue
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import Event, Resumed
from scalerl.records.roles import Graded, Handover, Request, Sampled, Update
from scalerl.records.rollout import Batch, Completion, Group, Outcome, Prompt, Score

Result = TypeVar("Result")


class Stuck(Exception):
    """Nothing can happen any more: every task waits for another one."""


class SimulatedCrash(BaseException):
    """The whole run is killed at this moment; nothing of it may act any more."""


class _JumpingSelector(selectors.SelectSelector):
    """Waits by moving the time of its loop forward."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.loop.advance(max(timeout, 0.0))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop and a clock in one; its time stands still while code runs and jumps to the next timer when all wait."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """The loop's time, in seconds."""
        return self._now_s

    def now_s(self) -> float:
        """The clock's time, in seconds."""
        return self._now_s

    def advance(self, duration_s: float) -> None:
        """Move time forward."""
        self._now_s += duration_s


def run_virtually(main: Coroutine[Any, Any, Result], *, loop: VirtualLoop) -> Result:
    """Run `main` on virtual time until it ends; what it leaves behind is cancelled, as by a kill."""
    try:
        return loop.run_until_complete(main)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulated run: how long things take, and what goes wrong. Durations in seconds of virtual time."""

    settings: LoopSettings
    selector: Selector
    seed: int
    num_prompts: int = 40
    num_steps: int = 12
    mean_tokens: float = 8.0
    """Completions have log-normal lengths: some are many times longer."""
    decode_step_s: float = 1.0
    train_s: float = 6.0
    grade_s: float = 0.5
    push_s: float = 0.2
    cut_off_rate: float = 0.0
    """Share of completions that their budget ends."""
    pass_rate: float = 0.5
    grading_failure_rate: float = 0.0
    duplicate_rate: float = 0.0
    """Share of finished groups that are delivered twice."""
    stall_rate: float = 0.0
    """Share of waits that take fifty times as long."""
    num_crashes: int = 0
    """Kills of the whole run, at random events; it goes on from its last checkpoint."""


@dataclass(slots=True)
class Report:
    """What happened in a simulated run."""

    reason: str = ""
    events: list[Entry[Event]] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    """Age of every trained group, in versions."""
    masked: list[Completion] = field(default_factory=list)
    """Completions that reached the trainer without a trainable token."""
    most_waiting: int = 0
    """Largest number of finished groups that waited for the trainer."""
    given_up: set[int] = field(default_factory=set)
    """Groups that the generator was told to give up."""
    checkpoint: LoopState = field(default_factory=LoopState)
    """The loop's state in the last checkpoint."""
    num_crashes: int = 0
    duration_s: float = 0.0


def simulate(scenario: Scenario) -> Report:
    """Run `scenario` to its end, through its crashes.

    Raises:
        AssertionError: an invariant does not hold.
        Stuck: the loop waits for something that cannot come.
    """
    dice = random.Random(scenario.seed)
    report = Report()
    store = _Store()
    crashes = sorted((dice.randrange(3, 40) for _ in range(scenario.num_crashes)), reverse=True)
    while True:
        loop = VirtualLoop(report.duration_s)
        run = _Run(scenario, dice, report, store, loop, crash_after=crashes.pop() if crashes else None)
        try:
            report.reason = run_virtually(run.run(), loop=loop)
        except SimulatedCrash:
            report.num_crashes += 1
            report.duration_s = loop.now_s()
            continue
        report.duration_s = loop.now_s()
        report.checkpoint = store.state()
        assert run.num_booked == run.num_spent, f"{run.num_booked} of {run.num_spent} costs are booked"
        return report


class _Store:
    """Checkpoints in memory; what was begun and not committed does not exist."""

    def __init__(self) -> None:
        self.latest: bytes | None = None

    def begin(self, step: int) -> Path:
        return Path(f"step-{step}")

    def commit(self, step: int, state: bytes) -> None:  # noqa: ARG002  (the protocol passes it)
        self.latest = state

    def state(self) -> LoopState:
        return LoopState() if self.latest is None else msgspec.json.decode(self.latest, type=LoopState)


class _Run:
    """One life of the run, from a checkpoint or the beginning to its end or a crash."""

    def __init__(
        self, scenario: Scenario, dice: random.Random, report: Report, store: _Store, loop: VirtualLoop, *, crash_after: int | None
    ) -> None:
        self.scenario, self.dice, self.report, self.loop = scenario, dice, report, loop
        self._events_left = crash_after
        self.num_spent, self.num_booked = 0, 0
        prompts = [Prompt(f"prompt-{index}", "simulated", "", (1,), "") for index in range(scenario.num_prompts)]
        state = store.state()
        queue = PromptQueue(prompts, scenario.selector, seed=scenario.seed, state=state.queue)
        self.generator = _Generator(self, version=state.version)
        self.orchestrator = Orchestrator(
            scenario.settings,
            prompts=queue,
            held_out=prompts[:4],
            generator=self.generator,
            grader=_Grader(self),
            trainer=_Trainer(self, version=state.version),
            store=store,
            journal=self,
            clock=loop,
            ends=lambda step: "steps" if step >= scenario.num_steps else None,
            state=state,
        )
        if report.events:
            self.append(Resumed(from_seq=state.seq))

    async def run(self) -> str:
        decoding = asyncio.create_task(self.generator.decode())
        try:
            return await self.orchestrator.run()
        finally:
            decoding.cancel()

    def append(self, event: Event) -> Entry[Event]:
        """Keep an event, check the census, and crash when it is time."""
        self.check()
        entry: Entry[Event] = Entry(len(self.report.events), self.loop.now_s(), event)
        self.report.events.append(entry)
        self.num_booked += len(event.costs)
        if self._events_left is not None and not isinstance(event, Resumed):
            self._events_left -= 1
            if self._events_left <= 0:
                raise SimulatedCrash
        return entry

    def check(self) -> None:
        """Every submitted group is in exactly one place."""
        census = self.orchestrator.census
        assert sum(census.values()) == self.orchestrator.num_submitted, f"groups are lost or counted twice: {census}"
        assert min(census.values()) >= 0, f"a place holds fewer than no groups: {census}"
        self.report.most_waiting = max(self.report.most_waiting, census[Place.BUFFERED])

    def spend(self, activity: Activity) -> tuple[Cost, ...]:
        """A cost that has to turn up in an event; each has a detail of its own, so that none is taken for another."""
        self.num_spent += 1
        return (Cost("simulated", activity, detail=str(self.num_spent)),)

    async def wait(self, duration_s: float) -> None:
        """Take time: about `duration_s`, sometimes far more."""
        stalls = self.dice.random() < self.scenario.stall_rate
        await asyncio.sleep(duration_s * self.dice.uniform(0.5, 1.5) * (50.0 if stalls else 1.0))


class _Generator:
    """Decodes one token per row and step; requests are admitted as whole groups."""

    def __init__(self, run: _Run, *, version: int) -> None:
        self._run = run
        self._version = version
        self._queue: list[Request] = []
        self._active: dict[int, list[_Row]] = {}
        self._requests: dict[int, Request] = {}
        self._room = 0
        self._outbox: list[Group] = []
        self._delivered: list[Group] = []
        self._wake = asyncio.Event()
        self._delivery = asyncio.Event()

    def submit(self, requests: Sequence[Request]) -> None:
        self._queue += requests
        self._wake.set()

    def allow(self, num_groups: int) -> None:
        self._room += num_groups
        self._deliver()
        self._wake.set()

    def cancel(self, groups: Collection[int]) -> None:
        self._run.report.given_up |= set(groups)
        self._queue = [request for request in self._queue if request.group not in groups]
        for group in groups:
            self._active.pop(group, None)
            self._requests.pop(group, None)

    async def decode(self) -> None:
        """Decode as long as there is work and room."""
        while True:
            self._admit()
            if not self._active or self._outbox or not self._room:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._run.wait(self._run.scenario.decode_step_s)
            for group, rows in list(self._active.items()):
                for row in rows:
                    row.sample(self._version)
                if all(row.num_left == 0 for row in rows):
                    del self._active[group]
                    self._outbox.append(self._finished(self._requests.pop(group), rows))
            self._deliver()

    def _admit(self) -> None:
        rows = sum(row.num_left > 0 for rows in self._active.values() for row in rows)
        while self._queue and rows + self._queue[0].num_completions <= self._run.scenario.settings.slots:
            request = self._queue.pop(0)
            self._requests[request.group] = request
            self._active[request.group] = [_Row(self._length()) for _ in range(request.num_completions)]
            rows += request.num_completions

    def _length(self) -> int:
        return max(1, round(self._run.scenario.mean_tokens * self._run.dice.lognormvariate(-0.5, 1.0)))

    def _finished(self, request: Request, rows: Sequence[_Row]) -> Group:
        completions = tuple(row.completion(index, finished=not self._is_cut_off()) for index, row in enumerate(rows))
        return Group(request.group, request.prompt, request.epoch, completions)

    def _is_cut_off(self) -> bool:
        rate = self._run.scenario.cut_off_rate
        return bool(rate) and self._run.dice.random() < rate

    def _deliver(self) -> None:
        while self._outbox and self._room:
            group = self._outbox.pop(0)
            self._room -= 1
            self._delivered.append(group)
            if self._run.dice.random() < self._run.scenario.duplicate_rate:
                self._delivered.append(group)
            self._delivery.set()

    async def finished(self) -> Sampled:
        await self._delivery.wait()
        self._delivery.clear()
        delivered, self._delivered = self._delivered, []
        return Sampled(tuple(delivered), self._run.spend(Activity.GENERATE))

    async def take_weights(self, version: int) -> Handover:
        await self._run.wait(self._run.scenario.push_s)
        assert version >= self._version, "versions only grow"
        self._version = version
        return Handover(version, self._run.spend(Activity.PUSH))

    async def evaluate(self, requests: Sequence[Request]) -> Sampled:
        await self._run.wait(self._run.scenario.decode_step_s)
        rows = [_Row(1) for _ in requests]
        for row in rows:
            row.sample(self._version)
        groups = tuple(self._finished(request, [row]) for request, row in zip(requests, rows, strict=True))
        return Sampled(groups, self._run.spend(Activity.EVALUATE))

    async def spent(self) -> tuple[Cost, ...]:
        return self._run.spend(Activity.IDLE)


@dataclass(slots=True)
class _Row:
    """One completion on its way."""

    num_left: int
    versions: list[int] = field(default_factory=list)

    def sample(self, version: int) -> None:
        if self.num_left:
            self.num_left -= 1
            self.versions.append(version)

    def completion(self, index: int, *, finished: bool) -> Completion:
        num_tokens = len(self.versions)
        runs = tuple((version, self.versions.count(version)) for version in sorted(set(self.versions)))
        return Completion(
            index=index,
            token_ids=np.ones(num_tokens, np.int32),
            log_probs=np.zeros(num_tokens, np.float32),
            trainable=np.ones(num_tokens, np.bool_),
            version_runs=runs,
            finished=finished,
        )


class _Grader:
    """Passes a share of the completions, and fails at others."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    async def grade(self, group: Group) -> Graded:
        await self._run.wait(self._run.scenario.grade_s)
        fails = self._run.dice.random() < self._run.scenario.grading_failure_rate
        return Graded(tuple(self._score(fails=fails) for _ in group.completions), self._run.spend(Activity.GRADE))

    def _score(self, *, fails: bool) -> Score:
        if fails or self._run.dice.random() < self._run.scenario.grading_failure_rate:
            return Score(None, None, Outcome.FAILED)
        passed = self._run.dice.random() < self._run.scenario.pass_rate
        return Score(float(passed), passed)


class _Trainer:
    """Takes time and counts versions; refuses what no trainer may be given."""

    def __init__(self, run: _Run, *, version: int) -> None:
        self._run = run
        self._version = version

    async def train(self, batch: Batch) -> Update:
        ages = [group.age(self._version) for group in batch.groups]
        assert batch.groups, "a batch without groups is no update"
        assert all(0 <= age <= self._run.scenario.settings.k for age in ages), f"ages {ages} are beyond k"
        assert ages == sorted(ages, reverse=True), "groups train oldest first"
        for group in batch.groups:
            assert any(completion.trainable.any() for completion in group.completions), "a group without a trainable token is no group"
            self._run.report.masked += [completion for completion in group.completions if not completion.trainable.any()]
        self._run.report.ages += ages
        await self._run.wait(self._run.scenario.train_s)
        self._version += 1
        return Update(self._version, {}, self._run.spend(Activity.TRAIN))

    async def publish_weights(self) -> Handover:
        await self._run.wait(self._run.scenario.push_s)
        return Handover(self._version, self._run.spend(Activity.PUSH))

    async def save(self, folder: Path) -> tuple[Cost, ...]:  # noqa: ARG002  (the protocol passes it)
        await self._run.wait(self._run.scenario.push_s)
        return self._run.spend(Activity.CHECKPOINT)

    async def spent(self) -> tuple[Cost, ...]:
        return self._run.spend(Activity.IDLE)


def lineage(events: Sequence[Entry[Event]]) -> list[Entry[Event]]:
    """The events that still count: those that a resume took back are left out."""
    kept: list[Entry[Event]] = []
    for entry in events:
        if isinstance(entry.event, Resumed):
            kept = [other for other in kept if other.seq <= entry.event.from_seq]
        kept.append(entry)
    return kept
