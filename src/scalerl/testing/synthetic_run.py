"""A synthetic run directory: a run that never happened, with every kind of event, whose numbers follow from arithmetic.

    run = write_run(tmp_path / "run")

The held-out pass rate follows the law A / (1 + (C_mid / C)^B) from `R0` on, evaluated exactly. Every step deals with four
groups of four completions; of those one is filtered, one is interrupted and half of the trained ones span two versions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scalerl.core.clock import ManualClock
from scalerl.recipes import resolve
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import (
    Alarmed,
    BaseReady,
    CheckpointStarted,
    Evaluated,
    Event,
    GroupFinished,
    Resumed,
    RunEnded,
    RunStarted,
    StepFinished,
)
from scalerl.records.push import DRIFT_PROBE, MeasuredDrift, Push, TokenDrift, TraceDrift
from scalerl.records.rollout import Completion, Group, Outcome, Prompt, Score
from scalerl.runs import RunDirectory
from scalerl.runs.rollouts import RolloutWriter

CEILING = 0.85
"""What the run says no policy can pass; the law's A lies there too."""
R0, C_MID, B = 0.20, 2.0e11, 2.0
PROMPTS, GROUP, TOKENS = 4, 4, 8
STEP_S, STEP_FLOPS = 2.0, 1.0e10
"""Seconds of a step, and FLOPs of it on the curve's axis: a fifth is generation."""
DRIFT = 0.01
"""Nats by which a kept cache moves one token of a completion that meets a push."""
HELD_OUT = 1000
EVALUATE_EVERY = 4
START_S = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class Occasion:
    """An event, the seconds since the one before, and the graded group that it finishes."""

    event: Event
    after_s: float = 0.0
    group: Group | None = None


def write_run(
    path: Path, *, num_steps: int = 100, resume_at: int | None = None, ends: str = "steps", ceiling: float = CEILING
) -> RunDirectory:
    """A run of `num_steps` steps at `path`.

    With `resume_at` it is killed after that step and goes on from the checkpoint of the step before: one step is wasted.
    """
    clock = ManualClock(START_S)
    run = RunDirectory.create(path, resolve("scalerl", overrides=[f"budget.steps={num_steps}"]), clock=clock)
    attempts = _attempts(num_steps, resume_at=resume_at, ends=ends, ceiling=ceiling)
    with run.writer(clock=clock) as log:
        for attempt, occasions in enumerate(attempts):
            rollouts = RolloutWriter(path, seed=0, attempt=attempt)
            for occasion in occasions:
                clock.advance(occasion.after_s)
                log.append(occasion.event)
                if occasion.group is not None:
                    rollouts.add(occasion.group)
            rollouts.close()
    return run


def pass_rate(step: int, *, ceiling: float = CEILING) -> float:
    """The held-out pass rate after a step: the law at what the steps have cost."""
    return R0 + (ceiling - R0) / (1.0 + (C_MID / (step * STEP_FLOPS)) ** B) if step else R0


def _attempts(num_steps: int, *, resume_at: int | None, ends: str, ceiling: float) -> Iterator[Sequence[Occasion]]:
    beginning = list(_beginning(ceiling))
    if resume_at is None:
        yield [*beginning, *_steps(1, num_steps, ceiling), Occasion(RunEnded(reason=ends))]
        return
    before = [*beginning, *_steps(1, resume_at - 1, ceiling), Occasion(CheckpointStarted(step=resume_at - 1))]
    yield [*before, *_steps(resume_at, resume_at, ceiling)]
    again = Occasion(Resumed(from_seq=len(before) - 1), after_s=100.0)
    yield [again, *_steps(resume_at, num_steps, ceiling), Occasion(RunEnded(reason=ends))]


def _beginning(ceiling: float) -> Iterator[Occasion]:
    yield Occasion(RunStarted(recipe_hash="synthetic", num_devices=2, usd_per_device_hour=3.6, ceilings={"chain": ceiling}))
    costs = (
        Cost("trainer:0", Activity.WARM_START, seconds=20.0, flops=5.0e11, tokens=10_000),
        Cost("generator:0", Activity.IDLE, seconds=20.0, detail="waits for the base"),
    )
    yield Occasion(BaseReady(costs=costs), after_s=20.0)
    yield _evaluation(0, ceiling)


def _steps(first: int, last: int, ceiling: float) -> Iterator[Occasion]:
    for step in range(first, last + 1):
        groups = [_group(PROMPTS * (step - 1) + slot, step=step, ceiling=ceiling) for slot in range(PROMPTS)]
        yield from (Occasion(_finished(group), STEP_S / PROMPTS, group) for group in groups)
        yield Occasion(_step(step, [group.id for group in groups]))
        if step == 10:
            yield Occasion(Alarmed(step=step, alarm="truncation", value=0.125, limit=0.10))
        if step <= 3 or step % EVALUATE_EVERY == 0:
            yield _evaluation(step, ceiling)


def _step(step: int, groups: Sequence[int]) -> StepFinished:
    tokens = PROMPTS * GROUP * TOKENS
    costs = (
        Cost(
            "generator:0", Activity.GENERATE, seconds=0.89 * STEP_S, flops=0.2 * STEP_FLOPS, overhead_flops=0.01 * STEP_FLOPS, tokens=tokens
        ),
        Cost("generator:0", Activity.PUSH, seconds=0.01 * STEP_S, tokens=10 * GROUP, detail=DRIFT_PROBE),
        Cost("generator:0", Activity.IDLE, seconds=0.1 * STEP_S, detail="buffer full"),
        Cost("trainer:0", Activity.TRAIN, seconds=0.75 * STEP_S, flops=0.8 * STEP_FLOPS, overhead_flops=0.08 * STEP_FLOPS, tokens=tokens),
        Cost("trainer:0", Activity.IDLE, seconds=0.24 * STEP_S, detail="no batch"),
        Cost(None, Activity.GRADE, seconds=0.05 * STEP_S, tokens=tokens, detail="exact"),
    )
    metrics: dict[str, float | None] = {
        "loss": -0.05 / step,
        "grad_norm": 0.5,
        "learning_rate": 3e-4,
        "entropy": 0.5 / (1.0 + 0.05 * step),
        "ess": 0.98 - 0.001 * min(step, 100),
        "ratio_max": 1.5,
        "kl_behaviour": 0.001,
        "mismatch_max": 2e-6,
        "mismatch_mean": 1e-6,
        "epoch": float(step // 50),
        "prompts_left_out": float(step // 10),
    }
    return StepFinished(
        step=step,
        version=step,
        trained=tuple(groups[1:]),
        filtered={"zero_variance": tuple(groups[:1])},
        metrics=metrics,
        push=_push(),
        costs=costs,
    )


def _push() -> Push:
    """A push that meets the last group after three tokens of each completion; of the next five one in five drifts by DRIFT."""
    kl, weight = math.expm1(DRIFT) - DRIFT, math.exp(DRIFT)
    drift = MeasuredDrift(
        tokens=(
            TokenDrift(1, 2, 4 * GROUP, DRIFT * GROUP, DRIFT**2 * GROUP, kl * GROUP, (3.0 + weight) * GROUP, (3.0 + weight**2) * GROUP),
            TokenDrift(1, 3, GROUP, 0.0, 0.0, 0.0, float(GROUP), float(GROUP)),
        ),
        traces=(TraceDrift(1, GROUP, weight * GROUP, weight**2 * GROUP),),
        recomputed_tokens=10 * GROUP,
        recomputed_pairs=55 * GROUP,
    )
    return Push(
        num_rows=GROUP,
        prompt_tokens=3 * GROUP,
        generated_tokens=2 * GROUP,
        reprefill_tokens=5 * GROUP,
        reprefill_pairs=15 * GROUP,
        waited_s=0.01 * STEP_S,
        drift=drift,
    )


def _evaluation(step: int, ceiling: float) -> Occasion:
    costs = (
        Cost("generator:0", Activity.EVALUATE, seconds=1.0, flops=1.0e10, tokens=HELD_OUT * TOKENS),
        Cost("trainer:0", Activity.IDLE, seconds=1.0, detail="evaluation"),
    )
    passed = round(HELD_OUT * pass_rate(step, ceiling=ceiling))
    event = Evaluated(task="chain", version=step, num_passed=passed, num_graded=HELD_OUT, blocked_s=1.0, costs=costs)
    return Occasion(event, after_s=1.0)


def _group(number: int, *, step: int, ceiling: float) -> Group:
    """Slot 0 fails as a whole, so that a filter takes it; of the others, the share passes that the law gives."""
    slot = number % PROMPTS
    prompt = Prompt(f"chain/{number % 200}", "chain", f"{number % 10}+3*2:", (1, 2, 3), "8")
    num_passed = 0 if slot == 0 else max(1, round(GROUP * pass_rate(step, ceiling=ceiling)))
    completions = tuple(_completion(index, slot=slot, version=step - 1, passed=index < num_passed) for index in range(GROUP))
    return Group(number, prompt, number // 200, completions)


def _completion(index: int, *, slot: int, version: int, passed: bool) -> Completion:
    is_cut_off, is_interrupted = (slot, index) == (0, 0), (slot, index) == (1, 0)
    is_spanning = slot == 3 and version > 0
    return Completion(
        index=index,
        token_ids=np.arange(1, TOKENS + 1, dtype=np.int32),
        log_probs=np.full(TOKENS, -0.25, dtype=np.float32),
        trainable=np.array([True] * 4 + [not is_interrupted] + [True] * 3),
        version_runs=((version - 1, 3), (version, 5)) if is_spanning else ((version, TOKENS),),
        finished=not is_cut_off,
        text="178=8" if passed else "177=\x1b[31m7<b>",
        score=Score(float(passed), passed, Outcome.CUT_OFF if is_cut_off else Outcome.GRADED),
    )


def _finished(group: Group) -> GroupFinished:
    done = group.completions
    scores = [completion.score for completion in done if completion.score is not None]
    return GroupFinished(
        group=group.id,
        prompt_id=group.prompt.id,
        epoch=group.epoch,
        task=group.prompt.task,
        num_tokens=tuple(completion.token_ids.size for completion in done),
        values=tuple(score.value for score in scores),
        passed=tuple(score.passed for score in scores),
        finished=tuple(completion.finished for completion in done),
        first_versions=tuple(completion.first_version for completion in done),
        last_versions=tuple(completion.last_version for completion in done),
        num_inserted=tuple(completion.num_inserted for completion in done),
        outcomes=tuple(score.outcome for score in scores),
    )
