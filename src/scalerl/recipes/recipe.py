"""Recipe: everything that decides a run, as one frozen tree.

    model, task, warm_start, batch.{prompts, group}, length, objective.{loss, advantage, aggregation},
    curriculum.{selector, filters}, engine.{type, kv, ...}, pipeline.{k, on_stale, ready_batches, schedule},
    trainer, evaluation, budget.{steps, flops, hours, usd}, runtime, checkpoints, rollouts, alarms, trackers, seed

No field is called batch_size: `batch.prompts` (P) and `batch.group` (G) are told apart, and their product is printed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BeforeValidator, Field, model_validator

from scalerl.accounting.alarms import Alarms
from scalerl.accounting.trackers import Tracker
from scalerl.core.components import Settings
from scalerl.core.errors import UnitError
from scalerl.core.units import FLOPS, USD, Axis, parse_quantity
from scalerl.curriculum.filters import Filter
from scalerl.curriculum.selectors import Selector
from scalerl.engines import Engine
from scalerl.models import Model
from scalerl.objective import Objective
from scalerl.objective.length_controls import LengthControl
from scalerl.pipeline.schedules import Schedule
from scalerl.recipes.tree import LABELS, Tree
from scalerl.runtimes import Runtime
from scalerl.tasks import Task
from scalerl.trainers import Trainer
from scalerl.trainers.warm_starts import WarmStart


def _on(axis: Axis) -> BeforeValidator:
    """Read a setting as a number or as text with a unit, e.g. `600 GFLOP`."""

    def read(value: Any) -> Any:
        try:
            return value if value is None else parse_quantity(value, axis).value
        except UnitError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


class Batch(Settings):
    """What one optimizer step is made of."""

    prompts: int = Field(gt=0)
    """P: prompts per step before `multiple`."""
    group: int = Field(gt=0)
    """G: completions per prompt."""
    multiple: int = Field(default=1, gt=0)
    """Factor on `prompts`: a recipe of large batches says it once for every scale."""

    @property
    def num_prompts(self) -> int:
        """Prompts that one step generates."""
        return self.prompts * self.multiple

    @property
    def num_completions(self) -> int:
        """Completions that one step generates: P x G."""
        return self.num_prompts * self.group


class Length(Settings):
    """Token budgets, and what keeps completions within them."""

    prompt_tokens: int = Field(gt=0)
    """Longer prompts are counted and left out."""
    completion_tokens: int = Field(gt=0)
    """Largest completion, inserted tokens included."""
    control: LengthControl


class Curriculum(Settings):
    """Which prompts are sampled and which groups are trained on."""

    selector: Selector
    filters: tuple[Filter, ...] = ()


class Pipeline(Settings):
    """How far generation and training may drift apart."""

    schedule: Schedule
    k: int = Field(ge=0)
    """Largest age of a trained completion, in versions; 0 is synchronous."""
    on_stale: Literal["hold", "drop", "cap_admission"] = "hold"
    """What the trainer does when a step would make a group older than k: wait for it, drop it, or stop admitting before."""
    ready_batches: int = Field(default=1, gt=0)
    """Finished batches that may wait for the trainer; it bounds the queue, where k bounds age."""
    patience: int = Field(default=20, gt=0)
    """Batches in a row without a group to train on after which the run ends."""


class Evaluation(Settings):
    """Held-out evaluation at one frozen version."""

    every_steps: int = Field(gt=0)
    """Distance of the regular evaluations."""
    early_growth: float = Field(default=1.6, gt=1.0)
    """Early evaluations are log-spaced, each at so many times the step of the one before, until they would lie farther apart than that."""
    samples: int = Field(default=1, gt=0)
    """Completions per held-out prompt: 16 gives mean@16."""


class Checkpoints(Settings):
    """What a resume can go back to."""

    every_steps: int = Field(default=100, gt=0)
    """Steps between two checkpoints; the last step is always kept."""
    keep_last: int = Field(default=2, gt=0)
    """Latest checkpoints that stay."""
    keep_every_steps: int | None = Field(default=None, gt=0)
    """Checkpoints of the multiples of so many steps stay for ever."""


class Rollouts(Settings):
    """Which completions are kept, token by token, in `rollouts/`."""

    share: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the training groups, drawn from the seed."""


class Budget(Settings):
    """When a run ends: at the first bound that it meets."""

    steps: int | None = Field(default=None, gt=0)
    flops: Annotated[float | None, _on(FLOPS)] = Field(default=None, gt=0.0)
    hours: float | None = Field(default=None, gt=0.0)
    """Wall-clock hours."""
    usd: Annotated[float | None, _on(USD)] = Field(default=None, gt=0.0)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if all(bound is None for bound in (self.steps, self.flops, self.hours, self.usd)):
            raise ValueError("give at least one of steps, flops, hours, usd")
        return self


class Recipe(Settings):
    """A complete run: ingredients on a scale, with every setting spelled out."""

    name: str = Field(min_length=1)
    """What the recipe is called."""
    about: str = ""
    """What it is and where it comes from."""
    seed: int = Field(default=0, ge=0)
    model: Model
    task: Task
    warm_start: WarmStart | None = None
    batch: Batch
    length: Length
    objective: Objective
    curriculum: Curriculum
    engine: Engine
    pipeline: Pipeline
    trainer: Trainer
    evaluation: Evaluation
    budget: Budget
    runtime: Runtime
    checkpoints: Checkpoints = Checkpoints()
    rollouts: Rollouts = Rollouts()
    alarms: Alarms = Alarms()
    trackers: tuple[Tracker, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Refuse what no run can mean, naming both keys."""
        advantage = self.objective.advantage
        if self.batch.group < advantage.least_group:
            raise ValueError(
                f"batch.group = {self.batch.group} leaves objective.advantage = {advantage.name()} no group to compare with:"
                f" take {advantage.least_group} or more"
            )
        for rule in self.curriculum.filters:
            if advantage.least_group < rule.least_group:
                raise ValueError(
                    f"objective.advantage = {advantage.name()} learns from groups of equal rewards too:"
                    f" leave curriculum.filters = {rule.name()} out"
                )
        schedule, control = self.pipeline.schedule, self.length.control
        if self.pipeline.k < schedule.least_k:
            raise ValueError(
                f"pipeline.schedule = {schedule.name()} takes no k = {self.pipeline.k}: pipeline.k must be {schedule.least_k} or more"
            )
        if self.length.completion_tokens < control.least_completion_tokens:
            raise ValueError(
                f"length.control = {control.name()} needs {control.least_completion_tokens} tokens,"
                f" but length.completion_tokens is {self.length.completion_tokens}: raise it or set length.control for fewer"
            )
        return self

    def tree(self) -> Tree:
        """The recipe as plain nested tables, every setting included; what is absent is left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_toml(self) -> str:
        """The recipe as the text of a TOML file that `resolve` reads back to an equal recipe."""
        return tomli_w.dumps(self.tree())

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits over every setting: the same on every machine and in any order of keys."""
        settings = {key: value for key, value in self.tree().items() if key not in LABELS}
        canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]
