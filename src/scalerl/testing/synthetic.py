"""Synthetic event logs: runs that never happened, of any length, with totals that follow from arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scalerl.core.clock import ManualClock
from scalerl.core.log_writer import LogWriter
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import CheckpointStarted, Evaluated, Event, GroupFinished, RunEnded, RunStarted, StepFinished

STEP_S = 10.0
PROMPTS = 48
GROUP = 8
TOKENS = 100


def write_log(path: Path, *, num_groups: int) -> int:
    """Write the log of a run of `num_groups` groups, 48 a step, with an evaluation every 100 steps; return its events."""
    clock = ManualClock(1_700_000_000.0)
    with LogWriter[Event](path, Event, clock=clock) as log:
        for event, duration_s in _events(num_groups // PROMPTS):
            clock.advance(duration_s)
            log.append(event)
        return log.next_seq


def _events(num_steps: int) -> Iterator[tuple[Event, float]]:
    """Events, each with the seconds since the one before."""
    yield RunStarted(recipe_hash="synthetic", num_devices=2, usd_per_device_hour=2.0), 0.0
    for step in range(1, num_steps + 1):
        groups = tuple(range((step - 1) * PROMPTS, step * PROMPTS))
        for number in groups:
            yield _group(number, version=step - 1), STEP_S / PROMPTS
        costs = (
            Cost("generator:0", Activity.GENERATE, seconds=STEP_S, flops=2e12, tokens=PROMPTS * GROUP * TOKENS),
            Cost("trainer:0", Activity.TRAIN, seconds=0.75 * STEP_S, flops=6e12, tokens=PROMPTS * GROUP * TOKENS),
            Cost("trainer:0", Activity.IDLE, seconds=0.25 * STEP_S, detail="waits for a batch"),
        )
        filtered = {"zero_variance": groups[:8]}
        yield StepFinished(step=step, version=step, trained=groups[8:], filtered=filtered, metrics={"loss": 0.1}, costs=costs), 0.0
        if step % 100 == 0:
            yield CheckpointStarted(step=step), 0.0
            yield Evaluated(task="math", version=step, num_passed=4000 + step % 4000, num_graded=16000), 0.0
    yield RunEnded(reason="steps"), 0.0


def _group(number: int, *, version: int) -> GroupFinished:
    passed = tuple((number + index) % 3 == 0 for index in range(GROUP))
    return GroupFinished(
        group=number,
        prompt_id=f"math/{number % 53_000}",
        epoch=number // 53_000,
        task="math",
        num_tokens=(TOKENS,) * GROUP,
        values=tuple(float(value) for value in passed),
        passed=passed,
        finished=(True,) * GROUP,
        first_versions=(max(0, version - number % 3),) * GROUP,
        last_versions=(version,) * GROUP,
    )
