"""Roles that only take time: what they make is random, and what they are asked to do is checked by `Books`.

The generator is event-driven: between two moments at which anything can change, all its rows get their tokens at once.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalerl.core.errors import LostRoleError, ScalerlError
from scalerl.pipeline.orchestrator import LoopState
from scalerl.pipeline.simulation.books import Books, is_probed
from scalerl.pipeline.simulation.scenario import Ending, Interruption, Scenario
from scalerl.pipeline.simulation.virtual_time import VirtualLoop
from scalerl.records.cost import Activity, Cost
from scalerl.records.push import Push
from scalerl.records.roles import Graded, Handover, Request, Sampled, Update
from scalerl.records.rollout import Batch, Completion, Group, Outcome, Score


class SimulatedFailure(ScalerlError):
    """A role or the disk fails as the scenario wants it: the run ends with this, and can be resumed."""


class World:
    """What all roles of one life share: time, chance, costs, and the failures that await them."""

    def __init__(
        self, scenario: Scenario, books: Books, store: Store, loop: VirtualLoop, *, life: int, interruption: Interruption | None
    ) -> None:
        self.scenario, self.books, self.store, self.loop = scenario, books, store, loop
        self.is_dead = False
        self._life = life
        self._num_left = {ending: interruption.after for ending in Ending if interruption is not None and interruption.ending is ending}
        self._chance = self.dice("durations")

    def dice(self, purpose: str) -> random.Random:
        """Chance of its own for each purpose, so that one draw more or less of it leaves the others as they are."""
        return random.Random(f"{purpose} {self.scenario.seed} {self._life}")

    def spend(self, activity: Activity, detail: str = "") -> tuple[Cost, ...]:
        """A cost of one token that has to turn up in an event."""
        return (self.books.spent(activity, detail),)

    async def wait(self, duration_s: float) -> None:
        """Take time: about `duration_s`, sometimes far more; then fail, if this is the moment for it."""
        await asyncio.sleep(self.about(duration_s))
        if self.is_time_for(Ending.ROLE_FAILED):
            raise SimulatedFailure("a role died", remedy="resume the run")

    def about(self, duration_s: float) -> float:
        """A duration, stretched by chance."""
        stalls = self._chance.random() < self.scenario.stall_rate
        return duration_s * (0.5 + self._chance.random()) * (50.0 if stalls else 1.0)

    def is_time_for(self, ending: Ending) -> bool:
        """Count one of what the moment of `ending` is counted in, and tell whether it has come."""
        if ending not in self._num_left:
            return False
        self._num_left[ending] -= 1
        return self._num_left[ending] == 0


class Store:
    """Checkpoints in memory, of a run and all its lives; what was begun and not committed does not exist."""

    def __init__(self) -> None:
        self.state = LoopState()
        """The loop's, in the last checkpoint."""
        self._encoded: bytes | None = None
        self._weights = 0
        """Version of the trainer's in the last checkpoint."""
        self._drafts: dict[Path, int] = {}

    def begin_life(self, world: World) -> LoopState:
        """What a run goes on from."""
        self._world = world
        assert self._weights == self.state.version, f"weights of version {self._weights} lie beside a loop at {self.state.version}"
        # Decoded anew: the loop goes on with it as its own.
        return LoopState() if self._encoded is None else msgspec.json.decode(self._encoded, type=LoopState)

    def begin(self, step: int) -> Path:
        """A folder that is no checkpoint yet."""
        self._check_disk()
        self._drafts = {}
        return Path(f"step-{step}")

    def write(self, folder: Path, *, version: int) -> None:
        """The trainer's part of a checkpoint."""
        self._check_disk()
        self._drafts[folder] = version

    def commit(self, step: int, state: bytes) -> None:
        """Make a checkpoint of the folder of `step`."""
        self._check_disk()
        self._weights = self._drafts.pop(Path(f"step-{step}"))
        self._encoded, self.state = state, msgspec.json.decode(state, type=LoopState)
        self._world.books.committed(self.state)

    def _check_disk(self) -> None:
        assert not self._world.is_dead, "the dead write nothing"
        if self._world.is_time_for(Ending.DISK_FULL):
            raise SimulatedFailure("the checkpoint cannot be written (No space left on device)", remedy="free disk space, then resume")


class Generator:
    """Decodes one token per row and step; requests are admitted as whole groups. It can be lost, and another takes its place."""

    def __init__(self, world: World, *, version: int) -> None:
        self._world = world
        self._first_version = version
        self._wake = asyncio.Event()
        self._delivery = asyncio.Event()
        self._lengths = world.dice("lengths")
        self._messages = world.dice("messages")
        self.is_lost = False
        self._num_restarts = 0
        self._begin()

    def _begin(self) -> None:
        """Be as a process that has just started."""
        self._gone = asyncio.Event()
        self.version = self._first_version
        self._queue: deque[Request] = deque()
        self._active: dict[int, _Active] = {}
        self._burst: _Burst | None = None
        self._room = 0
        self._outbox: deque[Group] = deque()
        self._delivered: list[Group] = []
        self._repeated: list[Group] = []
        self._evaluation: asyncio.TimerHandle | None = None
        self._evaluated: tuple[Group, ...] = ()
        self._told: tuple[Group, ...] = ()

    @property
    def num_held(self) -> int:
        """Groups that were submitted, and are neither handed over nor given up."""
        return len(self._queue) + len(self._active) + len(self._outbox) + len(self._delivered)

    @property
    def num_granted(self) -> int:
        """Groups for which there is room, those on their way to the loop included."""
        return self._room + len(self._delivered)

    def lose(self) -> None:
        """Be gone, with all that was not delivered; what was may or may not be read still."""
        delivered, evaluated = (self._delivered, self._evaluated) if self._messages.random() < 0.5 else ([], ())
        lost = [request.group for request in self._queue] + list(self._active) + [group.id for group in (*self._outbox, *self._delivered)]
        self._world.books.lost(set(lost) - {group.id for group in delivered}, num_granted=self.num_granted)
        if self._evaluation is not None:
            self._evaluation.cancel()
        self._gone.set()
        gone = self._gone
        self._begin()
        self._gone = gone
        self._delivered, self._evaluated = delivered, evaluated
        self.is_lost = True
        self._wake.set()
        self._delivery.set()

    async def restart(self, loss: LostRoleError) -> tuple[Cost, ...]:
        """Start another one in the place of a lost one, as often as is set."""
        assert self.is_lost, "a generator that lives is replaced"
        assert isinstance(loss, LostRoleError), "the loss is told to whoever starts another one"
        self._num_restarts += 1
        if self._num_restarts > self._world.scenario.most_restarts:
            raise SimulatedFailure("the generator died too often", remedy="resume the run")
        await self._world.wait(self._world.scenario.start_s)
        self._begin()
        self.is_lost = False
        self._delivery.clear()
        return self._world.spend(Activity.LOAD)

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue requests."""
        self._world.books.submitted(requests)
        if self.is_lost:
            self._world.books.lost({request.group for request in requests})
            return
        self._queue += requests
        self._wake.set()

    def allow(self, num_groups: int) -> None:
        """Grant room for so many more finished groups."""
        if not self.is_lost:
            self._room += num_groups
            self._world.books.allowed(num_groups, num_granted=self.num_granted)
            self._deliver()
            self._wake.set()

    def cancel(self, groups: Collection[int]) -> None:
        """Give up requests."""
        self._world.books.given_up |= set(groups)
        self._queue = deque(request for request in self._queue if request.group not in groups)
        self._active = {group: active for group, active in self._active.items() if group not in groups}
        self._outbox = deque(group for group in self._outbox if group.id not in groups)
        self._delivered = [group for group in self._delivered if group.id not in groups]
        self._wake.set()

    async def decode(self) -> None:
        """Decode as long as there is work and room."""
        while True:
            self._admit()
            self._wake.clear()
            if not self._active or self._outbox or not self._room:
                await self._wake.wait()
                continue
            num_steps = min(row.num_left for active in self._active.values() for row in active.rows if row.num_left)
            self._burst = _Burst(self._world.loop.now_s(), self._world.about(self._world.scenario.decode_step_s), num_steps)
            timer = self._world.loop.call_at(self._burst.end_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            self._catch_up()
            self._burst = None
            self._deliver()

    def _catch_up(self) -> None:
        """Give all rows the tokens of the steps that have passed."""
        if self._burst is None or not (num_steps := self._burst.take(self._world.loop.now_s())):
            return
        for active in list(self._active.values()):
            for row in active.rows:
                row.sample(num_steps, self.version)
            if not any(row.num_left for row in active.rows):
                del self._active[active.request.group]
                self._outbox.append(active.finished(self._cuts_off))

    def _admit(self) -> None:
        num_rows = sum(row.num_left > 0 for active in self._active.values() for row in active.rows)
        while self._queue and num_rows + self._queue[0].num_completions <= self._world.scenario.settings.slots:
            request = self._queue.popleft()
            self._active[request.group] = _Active(request, [_Row(self._length()) for _ in range(request.num_completions)])
            num_rows += request.num_completions

    def _length(self) -> int:
        return max(1, round(self._world.scenario.mean_tokens * self._lengths.lognormvariate(-0.5, 1.0)))

    def _cuts_off(self) -> bool:
        return self._lengths.random() < self._world.scenario.cut_off_rate

    def _deliver(self) -> None:
        while self._outbox and self._room:
            group = self._outbox.popleft()
            self._room -= 1
            self._delivered.append(group)
            if self._messages.random() < self._world.scenario.duplicate_rate:
                self._repeated.append(group)
            self._delivery.set()

    async def finished(self) -> Sampled:
        """The next finished groups and evaluations, and sometimes those that were handed over before."""
        await self._delivery.wait()
        if self.is_lost and not self._delivered and not self._evaluated:
            raise LostRoleError("the generator died", remedy="resume the run")
        groups, self._delivered = self._delivered, []
        evaluated, self._evaluated = self._evaluated, ()
        if evaluated:
            self._told = evaluated
        elif self._messages.random() < self._world.scenario.duplicate_rate:
            evaluated = self._told
        if not self.is_lost:
            self._delivery.clear()
        if self._messages.random() < 0.5:
            groups, self._repeated = [*self._repeated, *groups] if self._messages.random() < 0.5 else [*groups, *self._repeated], []
        return Sampled(tuple(groups), self._world.spend(Activity.GENERATE), evaluated)

    async def take_weights(self, version: int) -> Handover:
        """Switch to the weights of `version` at a decode-step boundary."""
        with self._world.books.taking_weights(version):
            await self._unless_lost(self._world.scenario.push_s)
            assert version >= self.version, "versions only grow"
            self._catch_up()
            self.version = version
        push = Push(num_rows=sum(len(active.rows) for active in self._active.values()), waited_s=float(version))
        self._world.books.handed_over(push)
        return Handover(version, self._world.spend(Activity.PUSH), _probe(version, of_trainer=False), push)

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        """Sample `requests` with the weights in use now, beside everything else."""
        version = requests[0].epoch if self.is_lost else self.version
        self._world.books.evaluation_begun(requests, version=version)
        if self.is_lost:
            self._world.books.lost(())
            return
        assert self._evaluation is None, "one evaluation at a time"
        duration_s = self._world.about(self._world.scenario.mean_tokens * self._world.scenario.decode_step_s)
        self._evaluation = self._world.loop.call_later(duration_s, self._end_evaluation, tuple(requests), self.version)

    def _end_evaluation(self, requests: Sequence[Request], version: int) -> None:
        rows = {request.group: [_Row(0, [(version, 1)]) for _ in range(request.num_completions)] for request in requests}
        self._evaluated = tuple(_Active(request, rows[request.group]).finished(self._cuts_off) for request in requests)
        self._evaluation = None
        self._delivery.set()

    async def spent(self) -> tuple[Cost, ...]:
        """What was spent since it last told."""
        await self._unless_lost(0.0)
        return self._world.spend(Activity.IDLE)

    async def _unless_lost(self, duration_s: float) -> None:
        """Work for a while, or be known to be lost as soon as that is so."""
        try:
            async with asyncio.timeout(self._world.about(duration_s)):
                await self._gone.wait()
        except TimeoutError:
            return
        raise LostRoleError("the generator died", remedy="resume the run")


@dataclass(slots=True)
class _Burst:
    """Decode steps during which rows neither come nor go."""

    start_s: float
    step_s: float
    num_steps: int
    num_taken: int = 0

    @property
    def end_s(self) -> float:
        return self.start_s + self.step_s * self.num_steps

    def take(self, now_s: float) -> int:
        """Steps that have passed and were not taken yet."""
        passed = self.num_steps if now_s >= self.end_s else math.floor((now_s - self.start_s) / self.step_s)
        taken, self.num_taken = passed - self.num_taken, passed
        return taken


@dataclass(slots=True)
class _Row:
    """One completion on its way."""

    num_left: int
    runs: list[tuple[int, int]] = field(default_factory=list)
    """(version, tokens) in order."""

    def sample(self, num_tokens: int, version: int) -> None:
        """Sample tokens, as far as there are any left."""
        num_tokens = min(num_tokens, self.num_left)
        if not num_tokens:
            return
        self.num_left -= num_tokens
        if self.runs and self.runs[-1][0] == version:
            num_tokens += self.runs.pop()[1]
        self.runs.append((version, num_tokens))


@dataclass(slots=True)
class _Active:
    """A request and its rows."""

    request: Request
    rows: list[_Row]

    def finished(self, cuts_off: Callable[[], bool]) -> Group:
        """The group of the rows."""
        completions = tuple(_completion(index, tuple(row.runs), finished=not cuts_off()) for index, row in enumerate(self.rows))
        return Group(self.request.group, self.request.prompt, self.request.epoch, completions)


def _completion(index: int, runs: tuple[tuple[int, int], ...], *, finished: bool) -> Completion:
    token_ids, log_probs, trainable = _tokens(sum(number for _, number in runs))
    return Completion(index, token_ids, log_probs, trainable, runs, finished)


@lru_cache(maxsize=1000)
def _tokens(number: int) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.bool_]]:
    """(T,) ids, log-probs and marks; two tokens in the middle of long completions are as if inserted."""
    trainable = np.ones(number, np.bool_)
    trainable[10:12] = False
    return np.ones(number, np.int32), np.zeros(number, np.float32), trainable


def _probe(version: int, *, of_trainer: bool) -> NDArray[np.float32]:
    """(tokens of the probe,) log-probs."""
    if not is_probed(version):
        return np.zeros(0, np.float32)
    return -np.arange(1, 4, dtype=np.float32) * np.float32(1.01 if of_trainer else 1.0)


class Grader:
    """Passes a share of the completions, and fails at others."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.dice("grades")

    async def grade(self, group: Group) -> Graded:
        """One score per completion."""
        await self._world.wait(self._world.scenario.grade_s)
        fails = self._chance.random() < self._world.scenario.grading_failure_rate
        scores = tuple(self._score(fails=fails) for _ in group.completions)
        self._world.books.graded(group, scores)
        return Graded(scores, self._world.spend(Activity.GRADE, f"grader of {group.prompt.task}"))

    def _score(self, *, fails: bool) -> Score:
        if fails or self._chance.random() < self._world.scenario.grading_failure_rate:
            return Score(None, None, Outcome.FAILED)
        passed = self._chance.random() < self._world.scenario.pass_rate
        return Score(float(passed), passed, parts={"exact": float(passed)})


class Trainer:
    """Takes time and counts versions; does one thing at a time."""

    def __init__(self, world: World, *, version: int) -> None:
        self._world = world
        self.version = version

    async def train(self, batch: Batch) -> Update:
        """One step."""
        with self._world.books.training(batch, version=self.version):
            await self._world.wait(self._world.scenario.train_s)
            self.version += 1
        return Update(self.version, {"loss": float(self.version)}, self._world.spend(Activity.TRAIN))

    async def publish_weights(self) -> Handover:
        """Put the weights where the generator takes them from."""
        with self._world.books.publishing(self.version):
            await self._world.wait(self._world.scenario.push_s)
        return Handover(self.version, self._world.spend(Activity.PUSH), _probe(self.version, of_trainer=True))

    async def save(self, folder: Path) -> tuple[Cost, ...]:
        """Write the weights into `folder`."""
        with self._world.books.saving():
            await self._world.wait(self._world.scenario.save_s)
            self._world.store.write(folder, version=self.version)
        return self._world.spend(Activity.CHECKPOINT)

    async def spent(self) -> tuple[Cost, ...]:
        """What was spent since it last told."""
        return self._world.spend(Activity.IDLE)
