"""Roles that do what a test's script says, at the times that it says, on virtual time: nothing is random here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from scalerl.core.errors import LostRoleError, ScalerlError
from scalerl.core.events import Entry
from scalerl.curriculum.selectors.uniform import Uniform
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.pipeline.orchestrator import LoopSettings, LoopState, Orchestrator, Place
from scalerl.pipeline.prompt_queue import PromptQueue
from scalerl.pipeline.schedules.pipeline_rl import PipelineRl
from scalerl.pipeline.simulation.virtual_time import VirtualLoop, run_virtually
from scalerl.records.cost import Cost
from scalerl.records.events import Event, StepFinished
from scalerl.records.roles import Graded, Handover, Request, Sampled, Update
from scalerl.records.rollout import Batch, Completion, Group, Prompt, Score


def loop_settings(**changes: object) -> LoopSettings:
    values: dict[str, object] = {
        "num_prompts": 2,
        "group": 2,
        "slots": 64,
        "k": 2,
        "schedule": PipelineRl(),
        "on_stale": "hold",
        "ready_batches": 1,
        "patience": 50,
        "filters": (),
        "control": Truncation(),
        "evaluate_every": 1000,
        "evaluation_growth": 1000.0,
        "evaluation_samples": 1,
        "checkpoint_every": 1000,
    }
    return LoopSettings(**{**values, **changes})  # type: ignore[arg-type]


@dataclass(slots=True)
class Script:
    """How long things take, in seconds, and how completions score."""

    settings: LoopSettings
    num_steps: int
    num_prompts: int = 1000
    sampling_s: Callable[[int], float] = lambda group: 1.0
    """By group."""
    grading_s: float = 0.0
    training_s: float = 1.0
    evaluating_s: float = 1.0
    values: Callable[[int], tuple[float, ...]] = lambda group: (0.0, 1.0)
    """By group: one for each completion."""
    state: LoopState | None = None
    most_restarts: int = 0


@dataclass(slots=True)
class Told:
    """What a scripted run has done."""

    events: list[Entry[Event]] = field(default_factory=list)
    censuses: list[dict[Place, int]] = field(default_factory=list)
    """Where the groups were, at each event."""
    batches: list[list[Group]] = field(default_factory=list)
    """What was trained on, step by step, those without groups excepted."""
    submitted: list[list[int]] = field(default_factory=list)
    """Groups by the call that submitted them."""
    pushed: list[int] = field(default_factory=list)
    saved: list[LoopState] = field(default_factory=list)

    def of(self, kind: type[Event]) -> list[Entry[Event]]:
        return [entry for entry in self.events if isinstance(entry.event, kind)]

    @property
    def steps(self) -> list[StepFinished]:
        return [entry.event for entry in self.events if isinstance(entry.event, StepFinished)]


class Stage:
    """Every role of a run, the journal included; a test reaches in through `orchestrator`, `loop` and `lose`."""

    def __init__(self, script: Script) -> None:
        self.script, self.told = script, Told()
        self.loop = VirtualLoop()
        state = script.state
        self._version = self._trainer_version = 0 if state is None else state.version
        self._room = 0
        self._in_flight: dict[int, asyncio.TimerHandle] = {}
        self._finished: list[Group] = []
        self._evaluation: asyncio.TimerHandle | None = None
        self._evaluated: tuple[Group, ...] = ()
        self._news = asyncio.Event()
        self._is_lost = False
        prompts = [Prompt(f"p{index}", "scripted", "", (1,), "") for index in range(script.num_prompts)]
        self.queue = PromptQueue(prompts, Uniform(), seed=0, state=None if state is None else state.queue)
        self.orchestrator = Orchestrator(
            script.settings,
            prompts=self.queue,
            held_out=[Prompt("held out", "scripted", "", (1,), "")],
            generator=self,
            grader=self,
            trainer=self,
            store=self,
            journal=self,
            clock=self.loop,
            ends=lambda step: "steps" if step >= script.num_steps else None,
            restart=self.restart,
            state=state,
        )

    def play(self) -> Told:
        """Run to the end."""
        run_virtually(self.orchestrator.run(), loop=self.loop)
        return self.told

    # The generator

    def submit(self, requests: Sequence[Request]) -> None:
        self.told.submitted.append([request.group for request in requests])
        for request in requests:
            done = (self._sampled, request, self._version)
            # A little later than the one before: timers of one moment come in no order.
            self._in_flight[request.group] = self.loop.call_later(self.script.sampling_s(request.group) + 1e-6 * request.group, *done)

    def allow(self, num_groups: int) -> None:
        self._room += num_groups
        self._news.set()

    def cancel(self, groups: Collection[int]) -> None:
        for group in groups:
            if group in self._in_flight:
                self._in_flight.pop(group).cancel()

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        self._evaluation = self.loop.call_later(self.script.evaluating_s, self._has_evaluated, requests, self._version)

    async def finished(self) -> Sampled:
        while True:
            if self._is_lost:
                raise LostRoleError("the generator died")
            if self._evaluated or (self._room and self._finished):
                break
            self._news.clear()
            await self._news.wait()
        num_groups = min(self._room, len(self._finished))
        self._room -= num_groups
        groups, self._finished = tuple(self._finished[:num_groups]), self._finished[num_groups:]
        evaluated, self._evaluated = self._evaluated, ()
        return Sampled(groups, (), evaluated)

    async def take_weights(self, version: int) -> Handover:
        if self._is_lost:
            raise LostRoleError("the generator died")
        assert version == self._trainer_version
        self._version = version
        self.told.pushed.append(version)
        return Handover(version)

    def lose(self) -> None:
        """The generator dies, with everything that it has not handed over."""
        self.cancel(list(self._in_flight))
        if self._evaluation is not None:
            self._evaluation.cancel()
        self._finished, self._evaluated, self._room, self._version = [], (), 0, 0
        self._is_lost = True
        self._news.set()

    async def restart(self, loss: LostRoleError) -> tuple[Cost, ...]:
        await asyncio.sleep(5.0)
        if not self.script.most_restarts:
            raise ScalerlError(f"{loss.what} too often")
        self.script.most_restarts -= 1
        self._is_lost = False
        return ()

    def _sampled(self, request: Request, version: int) -> None:
        del self._in_flight[request.group]
        self._finished.append(_group(request, version))
        self._news.set()

    def _has_evaluated(self, requests: Sequence[Request], version: int) -> None:
        self._evaluated = tuple(_group(request, version) for request in requests)
        self._news.set()

    # The grader

    async def grade(self, group: Group) -> Graded:
        await asyncio.sleep(self.script.grading_s)
        values = self.script.values(group.id)[: len(group.completions)]
        return Graded(tuple(Score(value, value > 0.0) for value in values))

    # The trainer

    async def train(self, batch: Batch) -> Update:
        self.told.batches.append(list(batch.groups))
        assert all(0 <= group.age(self._trainer_version) <= self.script.settings.k for group in batch.groups)
        await asyncio.sleep(self.script.training_s)
        self._trainer_version += 1
        return Update(self._trainer_version, {})

    async def publish_weights(self) -> Handover:
        return Handover(self._trainer_version)

    async def save(self, folder: Path) -> tuple[Cost, ...]:
        return ()

    async def spent(self) -> tuple[Cost, ...]:
        return ()

    # Store and journal

    def begin(self, step: int) -> Path:
        return Path(str(step))

    def commit(self, step: int, state: bytes) -> None:
        self.told.saved.append(msgspec.json.decode(state, type=LoopState))
        assert self.told.saved[-1].version == self._trainer_version

    def append(self, event: Event) -> Entry[Event]:
        census = dict(self.orchestrator.census)
        assert sum(census.values()) == self.orchestrator.num_submitted
        self.told.censuses.append(census)
        self.told.events.append(Entry(len(self.told.events), self.loop.now_s(), event))
        return self.told.events[-1]


def _group(request: Request, version: int) -> Group:
    tokens = np.ones(1, np.int32)
    completions = tuple(
        Completion(index, tokens, np.zeros(1, np.float32), np.ones(1, np.bool_), ((version, 1),), finished=True)
        for index in range(request.num_completions)
    )
    return Group(request.group, request.prompt, request.epoch, completions)
