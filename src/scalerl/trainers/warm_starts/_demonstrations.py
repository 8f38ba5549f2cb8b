"""Supervised training on demonstrations: next-token cross entropy on their tokens and the end token.

Which examples a step sees and how they are spoilt are functions of (seed, kind, place in the training) alone. The rate falls
as half a cosine within each kind of steps; betas, weight decay and clipping are
the defaults of RL, eps is the usual 1e-8 instead of its 1e-15. Prompts have the very tokens that RL samples from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, count

import numpy as np

from scalerl.accounting.flops import TrainingFlops
from scalerl.accounting.meter import Meter
from scalerl.core.errors import UsageError
from scalerl.core.random import stream_key, uniform
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.tasks import Example, Noise, Split, Task
from scalerl.trainers._log_probs import log_probs
from scalerl.trainers._optimizer import MasterAdamW
from scalerl.trainers._passes import Books, Passes
from scalerl.trainers._rows import Row
from scalerl.trainers.warm_starts.demonstrations import Demonstrations

_MICRO_BATCH_TOKENS = 1024
"""The fastest for a 64 x 2 decoder on one CPU core: activations stay in the cache and little is padded (4096: 6 % slower)."""
_DRAWS_AT_ONCE = 32
"""Draws made for a demonstration in one go with those of the others; what it needs beyond them is drawn singly."""
_TEXTS_KEPT = 2**16
"""Prompts come again every few steps, and demonstrations without errors too; a text takes 30 us to tokenise."""

_Encode = Callable[[str], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Course:
    """Steps of one kind."""

    kind: str
    steps: int
    learning_rate: float
    noise: Noise


def imitate(settings: Demonstrations, policy: Policy, task: Task, *, seed: int, meter: Meter, between: Callable[[], None]) -> None:
    """Train `policy` in place on demonstrations of the task's training examples.

    Raises:
        UsageError: the task cannot write demonstrations.
        DataError: the tokenizer cannot write one.
    """
    where = f"task '{task.name()}'"
    encode_prompt, encode = (lru_cache(_TEXTS_KEPT)(partial(method, where=where)) for method in (policy.encode_prompt, policy.encode))
    full = _Course("full", settings.steps, settings.learning_rate, Noise(error_rate=settings.error_rate))
    messy_noise = Noise(error_rate=settings.messy_error_rate, direct_share=settings.direct_share)
    messy = _Course("messy", settings.messy_steps, settings.messy_learning_rate, messy_noise)
    with meter.doing(Activity.WARM_START):
        optimizer = MasterAdamW(policy.module.named_parameters())
        passes = Passes(
            policy.hidden,
            Books(meter, Activity.WARM_START, TrainingFlops.of(policy.flops)),
            max_tokens=_MICRO_BATCH_TOKENS,
            shares_prompts=False,
            pad_id=policy.pad_id,
            device=policy.device,
        )
        for course in (full, messy):
            for step, texts in enumerate(_written(course, task, batch=settings.batch, seed=seed)):
                rows = _rows(texts, encode_prompt=encode_prompt, encode=encode, end=policy.tokenizer.eos_token_id)
                _backward(passes, rows, policy=policy, optimizer=optimizer)
                optimizer.update(course.learning_rate * (1.0 + math.cos(math.pi * step / course.steps)) / 2.0)
                between()


def _written(course: _Course, task: Task, *, batch: int, seed: int) -> Iterator[list[tuple[str, str]]]:
    """(prompt, demonstration) pairs of each step."""
    examples = task.examples(Split.TRAIN)
    key = stream_key(seed, "demonstrations", course.kind)
    for step in range(course.steps):
        numbers = np.arange(step * batch, (step + 1) * batch)
        draws = uniform(key, numbers[:, None], np.arange(_DRAWS_AT_ONCE)).tolist()
        yield [
            _demonstration(task, examples, course.noise, chain(row, _further_draws(key, number)))
            for number, row in zip(numbers.tolist(), draws, strict=True)
        ]


def _further_draws(key: tuple[int, int], number: int) -> Iterator[float]:
    return (float(uniform(key, number, position)) for position in count(_DRAWS_AT_ONCE))


def _demonstration(task: Task, examples: Sequence[Example], noise: Noise, draws: Iterator[float]) -> tuple[str, str]:
    example = examples[int(next(draws) * len(examples))]
    text = task.demonstration(example, noise=noise, draw=draws.__next__)
    if text is None:
        raise UsageError(
            f"the task '{task.name()}' cannot write demonstrations", where="recipe: warm_start", remedy="leave the warm start out"
        )
    return example.text, text


def _rows(texts: Sequence[tuple[str, str]], *, encode_prompt: _Encode, encode: _Encode, end: int) -> list[Row]:
    """One row per demonstration, closed by the end token; the weights make the loss a mean over the tokens of the step."""
    pairs = [(encode_prompt(prompt), (*encode(demonstration), end)) for prompt, demonstration in texts]
    weight = 1.0 / sum(len(completion) for _, completion in pairs)
    return [Row.of(prompt, completion, weight=weight) for prompt, completion in pairs]


def _backward(passes: Passes, rows: Sequence[Row], *, policy: Policy, optimizer: MasterAdamW) -> None:
    for batch, states in passes.over(rows):
        chosen, _ = log_probs(policy, states, batch.targets, temperature=1.0)
        loss = -(batch.weights * batch.spread(chosen)).sum()
        loss.backward()
        optimizer.absorb()
