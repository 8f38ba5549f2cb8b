"""The pipeline on a virtual clock: the same orchestrator, with roles that only take time and fail as they are told.

    report = simulate(drawn(7))
    python -m scalerl.pipeline.simulation 7                 prints scenario 7, its events, and what breaks

A scenario is one integer, and replays exactly. Whatever it draws, at every event and whenever all tasks wait, the invariants of
`books.py` hold: each group is in one place, none is older than k, none is lost or settled twice over all lives of the run, every
cost is in one event, and what a checkpoint holds is what the events say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from scalerl.core.errors import ScalerlError
from scalerl.core.events import Entry
from scalerl.pipeline.orchestrator import LoopState, Orchestrator
from scalerl.pipeline.prompt_queue import PromptQueue
from scalerl.pipeline.simulation.books import HELD_OUT, Books
from scalerl.pipeline.simulation.roles import Generator, Grader, SimulatedFailure, Store, Trainer, World
from scalerl.pipeline.simulation.scenario import Ending, Interruption, Scenario, drawn
from scalerl.pipeline.simulation.virtual_time import VirtualLoop, run_virtually
from scalerl.records.events import Event, Resumed
from scalerl.records.rollout import Prompt

__all__ = ["Ending", "Interruption", "Report", "Scenario", "drawn", "failure", "lineage", "simulate"]

STOPPED = "asked to stop"
OUT_OF_PATIENCE = "gave nothing to train on"
"""What a run says that ends because its filters or its grader leave nothing."""
_MOST_TURNS = 20_000
"""Turns of the event loop after which a life is taken for one that never ends; drawn scenarios take at most some 3,000."""


class SimulatedDeath(BaseException):
    """The whole run is killed at this moment; nothing of it may act any more."""


@dataclass(slots=True)
class Report:
    """What happened in a simulated run."""

    reason: str = ""
    """Why the run ended, as it told."""
    events: list[Entry[Event]] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    """Age of every trained group, in versions."""
    most_in_flight: int = 0
    """Largest number of groups that the generator had."""
    most_waiting: int = 0
    """Largest number of finished groups that waited for the trainer."""
    given_up: set[int] = field(default_factory=set)
    """Groups that the generator was told to give up."""
    checkpoint: LoopState = field(default_factory=LoopState)
    """The loop's state in the last checkpoint."""
    endings: list[str] = field(default_factory=list)
    """How each life ended that was not the last."""
    num_turns: int = 0
    """Turns of the event loop, over all lives."""
    duration_s: float = 0.0


def simulate(scenario: Scenario, *, report: Report | None = None) -> Report:
    """Run `scenario` to its end, through all its lives.

    Args:
        report: is filled as the run goes; one that is passed in is there also after a failure.

    Raises:
        AssertionError: an invariant does not hold.
        Stuck: the loop waits for something that cannot come.
        ScalerlError: the run ended with an error that the scenario did not ask for: its patience is over.
    """
    report = Report() if report is None else report
    books, store = Books(scenario), Store()
    report.events, report.ages, report.given_up = books.events, books.ages, books.given_up
    interruptions = list(reversed(scenario.interruptions))
    while not report.reason:
        life = _Life(scenario, books, store, report, interruptions.pop() if interruptions else None)
        try:
            life.live()
        finally:
            report.duration_s = life.loop.now_s()
            report.checkpoint, report.most_in_flight, report.most_waiting = store.state, books.most_in_flight, books.most_waiting
    return report


def failure(scenario: Scenario, *, report: Report | None = None) -> str | None:
    """What breaks in `scenario`; None if nothing does."""
    try:
        simulate(scenario, report=report)
    except Exception as error:  # Whatever else a run ends with than a reason is a failure of it.
        is_sentence = isinstance(error, ScalerlError) and OUT_OF_PATIENCE in error.what
        return None if is_sentence else f"{type(error).__name__}: {error}"
    return None


class _Life:
    """One life of the run, from a checkpoint or the beginning to its end or a death."""

    def __init__(self, scenario: Scenario, books: Books, store: Store, report: Report, interruption: Interruption | None) -> None:
        self.loop = VirtualLoop(report.duration_s)
        self.loop.before_turn = self._turn
        self._scenario, self._books, self._report = scenario, books, report
        self._world = World(scenario, books, store, self.loop, life=len(report.endings), interruption=interruption)
        self._ending = None if interruption is None else interruption.ending
        self._last_turn = 0 if interruption is None else interruption.after
        self._losses = frozenset(scenario.generator_losses)
        self._num_turns = 0
        self._main: asyncio.Task[str] | None = None
        state = store.begin_life(self._world)
        prompts = [Prompt(f"prompt-{index}", "simulated", "", (1,), "") for index in range(scenario.num_prompts)]
        queue = PromptQueue(prompts, scenario.selector, seed=scenario.seed, state=state.queue)
        self._generator = Generator(self._world, version=state.version)
        self._orchestrator = Orchestrator(
            scenario.settings,
            prompts=queue,
            held_out=HELD_OUT,
            generator=self._generator,
            grader=Grader(self._world),
            trainer=Trainer(self._world, version=state.version),
            store=store,
            journal=self,
            clock=self.loop,
            ends=lambda step: "steps" if step >= scenario.num_steps else None,
            inspect_base=books.base_inspected,
            keep_rollout=books.rollout_kept,
            restart=self._generator.restart,
            state=state,
        )
        books.begin_life(state, orchestrator=self._orchestrator, queue=queue, generator=self._generator, now_s=self.loop.now_s())
        if report.events:
            self.append(Resumed(from_seq=state.seq))

    def live(self) -> None:
        """Run until the end, which the report then tells, or until something ends this life before."""
        ending = self._ending
        try:
            reason = run_virtually(self._run(), loop=self.loop)
        except SimulatedDeath:
            if ending is Ending.LOST_POWER:
                self._books.lose_events(self._world.dice("power"))
        except asyncio.CancelledError:
            assert ending is Ending.CANCELLED, "nobody has cancelled the run"
        except SimulatedFailure as failure:
            self._report.endings.append(str(failure))
            return
        except ScalerlError:
            self._books.gave_up()
            raise
        else:
            self._books.end_life(reason)
            if reason != STOPPED:
                self._report.reason = reason
                return
        self._report.endings.append(str(ending))

    async def _run(self) -> str:
        self._main = asyncio.current_task()
        decoding = asyncio.create_task(self._generator.decode())
        try:
            return await self._orchestrator.run()
        finally:
            decoding.cancel()
            left = asyncio.all_tasks() - {self._main, decoding}
            assert not left or self._world.is_dead, f"the loop has ended and {left} go on"

    def append(self, event: Event) -> Entry[Event]:
        """Keep an event, and die when it is time."""
        if self._world.is_dead:
            raise SimulatedDeath
        self._books.check_places()
        entry = self._books.append(event, time_s=self.loop.now_s())
        if not isinstance(event, Resumed) and self._world.is_time_for(Ending.KILLED_AT_EVENT):
            self._die()
        return entry

    def _turn(self) -> None:
        """Every task waits: nothing may be out of place, and this may be the moment for something to go wrong."""
        if self._world.is_dead:
            raise SimulatedDeath
        self._books.check_places()
        self._books.check_flight()
        self._num_turns += 1
        self._report.num_turns += 1
        assert self._num_turns < _MOST_TURNS, "the run does not end"
        if self._report.num_turns in self._losses and not self._generator.is_lost:
            self._generator.lose()
        if self._num_turns == self._last_turn:
            self._interrupt()

    def _interrupt(self) -> None:
        """End this life, if its interruption counts turns."""
        match self._ending:
            case Ending.KILLED | Ending.LOST_POWER:
                self._die()
            case Ending.CANCELLED if self._main is not None:
                self._main.cancel()
            case Ending.STOPPED:
                self._orchestrator.stop(STOPPED)
                self._books.asked_to_stop()

    def _die(self) -> None:
        self._world.is_dead = True
        raise SimulatedDeath


def lineage(events: Sequence[Entry[Event]]) -> list[Entry[Event]]:
    """The events that still count: those that a resume took back are left out."""
    kept: list[Entry[Event]] = []
    for entry in events:
        if isinstance(entry.event, Resumed):
            kept = [other for other in kept if other.seq <= entry.event.from_seq]
        kept.append(entry)
    return kept
