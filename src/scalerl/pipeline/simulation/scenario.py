"""Scenarios: what a simulated run is made of, how long things take and what goes wrong, each drawn from one integer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from scalerl.curriculum.filters import Filter
from scalerl.curriculum.filters.overlong import Overlong
from scalerl.curriculum.filters.staleness import Staleness
from scalerl.curriculum.filters.zero_variance import ZeroVariance
from scalerl.curriculum.selectors import Selector
from scalerl.curriculum.selectors.difficulty import Difficulty
from scalerl.curriculum.selectors.no_positive_resampling import NoPositiveResampling
from scalerl.curriculum.selectors.uniform import Uniform
from scalerl.objective.length_controls.penalty import Penalty
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.pipeline.orchestrator import LoopSettings
from scalerl.pipeline.schedules.pipeline_rl import PipelineRl
from scalerl.pipeline.schedules.ppo_off_policy import PpoOffPolicy


class Ending(StrEnum):
    """How a life of a run can end before the run does; the next life goes on from the last checkpoint."""

    KILLED = "killed"
    """Between two turns of the event loop, that is at any await."""
    KILLED_AT_EVENT = "killed at event"
    """Right after an event was written down, that is within a turn."""
    LOST_POWER = "lost power"
    """Killed, and events behind the last committed checkpoint are gone from the log."""
    CANCELLED = "cancelled"
    """The second Ctrl-C: the task that runs the loop is cancelled."""
    STOPPED = "stopped"
    """The first Ctrl-C: the loop is asked to end after its step."""
    ROLE_FAILED = "role failed"
    """An answer of a role is an error."""
    DISK_FULL = "disk full"
    """The store or the trainer cannot write a checkpoint."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """An ending and its moment in a life."""

    ending: Ending
    after: int
    """Turns of the event loop; for KILLED_AT_EVENT events, for ROLE_FAILED answers, for DISK_FULL attempts to write."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulated run. Durations in seconds of virtual time."""

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
    save_s: float = 0.2
    start_s: float = 5.0
    """What it takes to start another generator."""
    cut_off_rate: float = 0.0
    """Share of completions that their budget ends."""
    pass_rate: float = 0.5
    grading_failure_rate: float = 0.0
    """Share of groups, and of the completions in the others, that cannot be graded."""
    duplicate_rate: float = 0.0
    """Share of finished groups that are delivered twice, in one message or in a later one; evaluations as well."""
    stall_rate: float = 0.0
    """Share of waits that take fifty times as long."""
    generator_losses: tuple[int, ...] = ()
    """Turns of the event loop, counted over all lives, at which the generator dies and another one is started."""
    most_restarts: int = 3
    """Generators that may be started in a life in the place of lost ones."""
    interruptions: tuple[Interruption, ...] = ()
    """Of the first life, the second one and so on; the life after them comes to the run's end."""

    def simplified(self) -> Iterator[tuple[str, Scenario]]:
        """The scenario without one of the things that go wrong, each with its name."""
        for number, interruption in enumerate(self.interruptions):
            rest = (*self.interruptions[:number], *self.interruptions[number + 1 :])
            yield f"interruption {number + 1} ({interruption.ending})", replace(self, interruptions=rest)
        for turn in self.generator_losses:
            rest_of_losses = tuple(other for other in self.generator_losses if other != turn)
            yield f"loss of the generator at turn {turn}", replace(self, generator_losses=rest_of_losses)
        for name in ("cut_off_rate", "grading_failure_rate", "duplicate_rate", "stall_rate"):
            if getattr(self, name):
                without: dict[str, Any] = {name: 0.0}
                yield name, replace(self, **without)


def drawn(seed: int) -> Scenario:
    """A scenario whose every choice follows from `seed`."""
    dice = random.Random(f"scenario {seed}")
    off_policy = dice.random() < 0.15
    k = dice.choice([0, 0, 1, 2, 3, 8])
    group = dice.choice([1, 2, 2, 3])
    loop = LoopSettings(
        num_prompts=dice.choice([1, 2, 3, 5]),
        group=group,
        slots=dice.choice([4, 9, 16, 40]),
        k=max(k, 1) if off_policy else k,
        schedule=PpoOffPolicy() if off_policy else PipelineRl(),
        on_stale=dice.choice(["hold", "hold", "drop", "cap_admission"]),
        ready_batches=dice.choice([1, 1, 2, 3]),
        patience=dice.choice([2, 5, 50, 50]),
        filters=_filters(dice, group=group),
        control=dice.choice([Truncation(), Truncation(), Penalty(limit_tokens=12, margin_tokens=8)]),
        evaluate_every=dice.choice([1, 3, 6]),
        evaluation_growth=dice.choice([1.2, 1.6, 3.0]),
        evaluation_samples=dice.choice([1, 1, 2]),
        checkpoint_every=dice.choice([1, 2, 3, 5]),
    )
    return Scenario(
        loop,
        selector=_selector(dice),
        seed=seed,
        num_prompts=dice.choice([2, 5, 12, 30, 60]),
        num_steps=dice.choice([2, 4, 8, 12]),
        mean_tokens=dice.choice([1.0, 2.0, 8.0, 20.0]),
        train_s=dice.choice([0.5, 6.0, 40.0]),
        grade_s=dice.choice([0.01, 0.5, 10.0]),
        push_s=dice.choice([0.01, 0.2, 5.0]),
        save_s=dice.choice([0.01, 0.2, 60.0]),
        start_s=dice.choice([0.01, 5.0, 60.0]),
        cut_off_rate=dice.choice([0.0, 0.0, 0.3]),
        pass_rate=dice.choice([0.1, 0.5, 0.8]),
        grading_failure_rate=dice.choice([0.0, 0.0, 0.2]),
        duplicate_rate=dice.choice([0.0, 0.2]),
        stall_rate=dice.choice([0.0, 0.02]),
        generator_losses=tuple(sorted({round(600 ** dice.random()) for _ in range(dice.choice([0, 0, 1, 4]))})),
        most_restarts=dice.choice([0, 2, 5]),
        interruptions=tuple(_interruption(dice) for _ in range(dice.choice([0, 1, 2, 4]))),
    )


def _selector(dice: random.Random) -> Selector:
    window = Difficulty(low=0.2, high=0.8, rest_epochs=dice.choice([1, 3]))
    return dice.choice([Uniform(), Uniform(), NoPositiveResampling(), window])


def _filters(dice: random.Random, *, group: int) -> tuple[Filter, ...]:
    chosen: list[Filter] = []
    if group >= ZeroVariance.least_group and dice.random() < 0.6:
        chosen.append(ZeroVariance(refill=dice.random() < 0.5))
    if dice.random() < 0.2:
        chosen.append(Overlong(refill=dice.random() < 0.5))
    if dice.random() < 0.2:
        chosen.append(Staleness(most_versions=dice.choice([0, 1, 3])))
    return tuple(chosen)


def _interruption(dice: random.Random) -> Interruption:
    """Moments are spread over their orders of magnitude: the beginning of a life has as much of its own as the rest."""
    ending = dice.choice([Ending.KILLED, *Ending])
    most = {Ending.KILLED_AT_EVENT: 60, Ending.ROLE_FAILED: 60, Ending.DISK_FULL: 6}.get(ending, 600)
    return Interruption(ending, after=round(most ** dice.random()))
