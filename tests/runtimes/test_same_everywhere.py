"""Real roles on the tiny model: a synchronous run is the same, bit for bit, in one process, in three, and resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from scalerl.core.clock import SystemClock
from scalerl.core.errors import UsageError
from scalerl.records.cost import Activity, Cost
from scalerl.records.roles import Request
from scalerl.records.rollout import Batch, Group, Prompt
from scalerl.runtimes import Roles, Runtime, Setup
from scalerl.runtimes.inline import Inline
from scalerl.runtimes.processes import Processes
from scalerl.runtimes.ray import Ray
from scalerl.tasks import Split
from tests.runtimes.fakes import setup

NUM_PROMPTS = 8


@dataclass(slots=True)
class Story:
    """What a run left behind."""

    tokens: list[tuple[int, ...]] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)
    probes: list[list[float]] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)


def told(runtime: Runtime, setup: Setup, *, steps: Iterable[int], save_to: Path | None = None) -> Story:
    """Synchronous steps: sample, reward the first token, train, push."""
    story = Story()

    async def whole() -> None:
        async with runtime.launch(setup, clock=SystemClock()) as roles:
            story.costs += roles.costs
            await push(roles, story)
            for step in steps:
                await one_step(roles, setup, step, story)
            if save_to is not None:
                save_to.mkdir()
                story.costs += await roles.trainer.save(save_to)
            story.costs += (*await roles.generator.spent(), *await roles.trainer.spent())

    asyncio.run(whole())
    return story


async def one_step(roles: Roles, setup: Setup, step: int, story: Story) -> None:
    tokenizer = AutoTokenizer.from_pretrained(roles.base)
    requests = []
    for number, example in enumerate(setup.task.examples(Split.TRAIN)[:NUM_PROMPTS]):
        ids = tuple(tokenizer(example.text, add_special_tokens=False)["input_ids"])
        prompt = Prompt(example.id, "chain", example.text, ids, example.answer)
        requests.append(Request(step * NUM_PROMPTS + number, prompt, step, 4))
    roles.generator.allow(len(requests))
    roles.generator.submit(requests)
    groups: list[Group] = []
    while len(groups) < len(requests):
        for group in (await roles.generator.finished()).groups:
            scores = (await roles.grader.grade(group)).scores
            rewards = [float(completion.token_ids[0] % 3) for completion in group.completions]
            groups.append(group.scored([replace(score, value=reward) for score, reward in zip(scores, rewards, strict=True)]))
    groups.sort(key=lambda group: group.id)
    story.tokens += [tuple(completion.token_ids.tolist()) for group in groups for completion in group.completions]
    update = await roles.trainer.train(Batch(step, tuple(groups)))
    assert update.version == step + 1
    story.losses.append(update.metrics["loss"])
    await push(roles, story)


async def push(roles: Roles, story: Story) -> None:
    published = await roles.trainer.publish_weights()
    taken = await roles.generator.take_weights(published.version)
    assert published.probe_log_probs.size > 0
    assert np.abs(published.probe_log_probs - taken.probe_log_probs).max() < 1e-4
    story.probes.append(taken.probe_log_probs.tolist())


@pytest.fixture
def two_threads() -> Iterator[int]:
    """A process whose number of threads is not that of the roles."""
    num_before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(num_before)


def test_inline_processes_and_a_resumed_run_are_one_run(tmp_path: Path, two_threads: int) -> None:
    whole = setup(tmp_path / "bases")
    processes = told(Processes(), whole, steps=range(3))
    first = told(Inline(), whole, steps=range(2), save_to=tmp_path / "checkpoint")
    resumed = told(Inline(), replace(whole, checkpoint=tmp_path / "checkpoint"), steps=[2])
    assert processes.tokens == first.tokens + resumed.tokens
    assert processes.losses == first.losses + resumed.losses
    assert processes.probes == first.probes + resumed.probes[1:]
    assert resumed.probes[0] == first.probes[-1]
    assert len({tuple(probe) for probe in processes.probes}) == 4, "each step changes the weights"
    assert torch.get_num_threads() == two_threads

    def kinds(story: Story) -> set[Activity]:
        return {cost.activity for cost in story.costs}

    assert Activity.LOAD in kinds(processes) & kinds(first) & kinds(resumed)
    assert Activity.WARM_START not in kinds(resumed)


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        (Ray(), "runtime.type: the ray runtime does not run yet; choose 'processes'"),
        (Processes(generator_devices=2), "runtime: the processes runtime has one device for each role, not 2 and 1"),
        (Inline(trainer_devices=8), "runtime: the inline runtime has one device for each role, not 1 and 8"),
    ],
    ids=str,
)
def test_what_a_runtime_cannot_do_is_refused_before_anything_starts(runtime: Runtime, expected: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=expected):
        runtime.launch(setup(tmp_path), clock=SystemClock())
