"""Evaluating a checkpoint: held-out prompts of a task, sampled by one frozen version as the run sampled them.

    evaluation = evaluate(Path("runs/mine/checkpoints/step-000400"), samples=16, ks=(1, 4))
    print(evaluation.mean.value, evaluation.pass_at[4].low)

A checkpoint of a run is sampled as its recipe says (lengths, interruption, temperature, head); any other one as `recipe_for`
says, a setting at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalerl.accounting.meter import Meter
from scalerl.accounting.passes import Measured, Vote, majority_at_k, measured, pass_at_k
from scalerl.core.clock import Clock
from scalerl.core.errors import DataError, UsageError
from scalerl.models.checkpoint import Checkpoint
from scalerl.recipes import Recipe, resolve
from scalerl.records.cost import Cost
from scalerl.records.roles import Request
from scalerl.records.rollout import Completion, Group
from scalerl.runs.checkpoints import CHECKPOINTS_FOLDER, checkpoints_in
from scalerl.runs.directory import RunDirectory
from scalerl.runs.training import tokenized
from scalerl.runtimes._grader import TaskGrader
from scalerl.tasks import Split

_FOREIGN = ("length.control=truncation", "length.prompt_tokens=4096", "length.completion_tokens=1024")
"""How a checkpoint of no run of ours is sampled, on top of the laptop scale, unless it is set."""
_SLOT_TOKENS = 2_000_000
"""Tokens of all completions in flight at once, prompts left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What a checkpoint reaches on the held-out prompts of a task."""

    task: str
    samples: int
    """Completions of each prompt."""
    level: float
    """Probability of the intervals."""
    temperature: float
    mean: Measured
    """mean@n: the pass rate of single completions."""
    pass_at: Mapping[int, Measured]
    majority_at: Mapping[int, Measured]
    num_ungraded: int
    """Completions whose grading failed; they are in no number but this."""
    cut_off_share: float
    """Completions that ended with their budget."""
    interrupted_share: float
    tokens_mean: float
    """Tokens of a completion, inserted ones left out."""
    ceiling: float | None
    """The largest pass rate that any policy can reach, where it can be proved."""
    costs: tuple[Cost, ...]

    def to_dict(self) -> dict[str, Any]:
        """The evaluation in plain data."""
        return {
            "task": self.task,
            "samples": self.samples,
            "level": self.level,
            "temperature": self.temperature,
            f"mean@{self.samples}": self.mean.to_dict(),
            **{f"pass@{k}": value.to_dict() for k, value in self.pass_at.items()},
            **{f"maj@{k}": value.to_dict() for k, value in self.majority_at.items()},
            "num_ungraded": self.num_ungraded,
            "cut_off_share": self.cut_off_share,
            "interrupted_share": self.interrupted_share,
            "tokens_mean": self.tokens_mean,
            "ceiling": self.ceiling,
            "seconds": sum(cost.seconds for cost in self.costs if cost.device is not None),
            "flops": sum(cost.flops for cost in self.costs),
        }


def folder_of(checkpoint: Path) -> Path:
    """The model folder that `checkpoint` names: itself, or the latest checkpoint of a run directory.

    Raises:
        UsageError: it is a run directory without a checkpoint.
    """
    if not RunDirectory(checkpoint).manifest_path.is_file():
        return checkpoint
    found = checkpoints_in(checkpoint / CHECKPOINTS_FOLDER)
    if not found:
        raise UsageError("the run has no checkpoint yet", where=str(checkpoint), remedy="wait for its first one")
    return found[max(found)]


def recipe_for(folder: Path, *, task: str | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """How the checkpoint in `folder` is evaluated: as its run's recipe says, with `overrides` and another `task` on top.

    Raises:
        UsageError: it is of no run, and no task is named; a setting is wrong.
    """
    folder = folder.absolute()
    run = RunDirectory(folder.parent.parent)
    is_of_run = folder.parent.name == CHECKPOINTS_FOLDER and run.manifest_path.is_file()
    if not is_of_run and task is None:
        raise UsageError("it is not said what to evaluate on", where=str(folder), remedy="name a task, e.g. scalerl eval CHECKPOINT chain")
    chosen = () if task is None else (f"task={task}",)
    base, conditions = (run.recipe_path, ()) if is_of_run else ("scalerl", _FOREIGN)
    return resolve(base, overrides=[*conditions, *chosen, *overrides])


def evaluate(
    folder: Path, recipe: Recipe, *, samples: int, ks: Sequence[int] = (), limit: int | None = None, level: float = 0.9, clock: Clock
) -> Evaluation:
    """Sample, grade and count.

    Args:
        folder: what AutoModelForCausalLM and AutoTokenizer load.
        recipe: task, lengths, engine and precision; of `recipe_for`.
        samples: completions of each prompt.
        ks: of pass@k and maj@k; none is larger than `samples`.
        limit: of the held-out prompts, the first so many; all by default.
        level: probability of the intervals.
        clock: times the work.

    Raises:
        UsageError: a k is larger than the samples.
        DataError: the checkpoint cannot be used, or no prompt can.
    """
    if beyond := [k for k in ks if not 0 < k <= samples]:
        raise UsageError(f"{samples} samples do not give k = {beyond[0]}", where="--k", remedy="raise --samples")
    meter = Meter("generator:0", clock=clock)
    groups = _sampled(folder, recipe, samples=samples, limit=limit, meter=meter)
    grader = TaskGrader(recipe.task.grader(), clock=clock)
    graded, grading_costs = asyncio.run(_graded(groups, grader))
    return _counted(graded, recipe, samples=samples, ks=ks, level=level, costs=(*meter.collect(), *grading_costs))


def _sampled(folder: Path, recipe: Recipe, *, samples: int, limit: int | None, meter: Meter) -> list[Group]:
    task, length = recipe.task, recipe.length
    policy = Checkpoint(path=str(folder), head=recipe.model.head, dtype=recipe.model.dtype).build(alphabet=None, seed=recipe.seed)
    examples = task.examples(Split.HELD_OUT)[:limit]
    prompts = [
        prompt
        for prompt in tokenized(examples, task=task.name(), tokenizer=folder / "tokenizer.json")
        if len(prompt.token_ids) <= length.prompt_tokens
    ]
    if not prompts:
        raise DataError(
            f"every prompt is longer than {length.prompt_tokens} tokens", where=task.name(), remedy="raise --set length.prompt_tokens"
        )
    engine = recipe.engine.model_copy(update={"slots": max(samples, min(recipe.engine.slots, _SLOT_TOKENS // length.completion_tokens))})
    loop = engine.build(
        policy,
        control=length.control,
        prompt_tokens=length.prompt_tokens,
        completion_tokens=length.completion_tokens,
        seed=recipe.seed,
        meter=meter,
    )
    return loop.evaluate([Request(number, prompt, 0, samples) for number, prompt in enumerate(prompts)], between=lambda: None)


async def _graded(groups: Sequence[Group], grader: TaskGrader) -> tuple[list[Group], list[Cost]]:
    graded, costs = [], list[Cost]()
    for group in groups:
        answer = await grader.grade(group)
        graded.append(group.scored(answer.scores))
        costs += answer.costs
    return graded, costs


def _counted(
    groups: Sequence[Group], recipe: Recipe, *, samples: int, ks: Sequence[int], level: float, costs: tuple[Cost, ...]
) -> Evaluation:
    grader = recipe.task.grader()
    votes = [
        [Vote(grader.answer(completion), passed) for completion in group.completions if (passed := _passed(completion)) is not None]
        for group in groups
    ]
    num_graded = np.array([len(of_prompt) for of_prompt in votes])
    num_passed = np.array([sum(vote.passed for vote in of_prompt) for of_prompt in votes])
    mean = measured(pass_at_k(num_passed, num_graded, k=1), trials_per_prompt=samples, level=level)
    if mean is None:
        raise DataError("no completion could be graded", where=recipe.task.name(), remedy="look at the grader's warning")
    at = {k: (pass_at_k(num_passed, num_graded, k=k), majority_at_k(votes, k=k)) for k in ks}
    passes, majorities = (
        {k: value for k, values in at.items() if (value := measured(values[kind], trials_per_prompt=samples // k, level=level))}
        for kind in (0, 1)
    )
    completions = [completion for group in groups for completion in group.completions]
    return Evaluation(
        task=recipe.task.name(),
        samples=samples,
        level=level,
        temperature=recipe.engine.temperature,
        mean=mean,
        pass_at=passes,
        majority_at=majorities,
        num_ungraded=len(completions) - int(num_graded.sum()),
        cut_off_share=sum(not completion.finished for completion in completions) / len(completions),
        interrupted_share=sum(completion.num_inserted > 0 for completion in completions) / len(completions),
        tokens_mean=sum(completion.token_ids.size - completion.num_inserted for completion in completions) / len(completions),
        ceiling=recipe.task.ceiling(),
        costs=costs,
    )


def _passed(completion: Completion) -> bool | None:
    return None if completion.score is None else completion.score.passed
