"""The roles of a setup, with their weights loaded. The only file of this room that imports torch and transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import torch

from scalerl.accounting.meter import Meter
from scalerl.models._policy import Policy
from scalerl.models._probe import Probe, probe_of
from scalerl.runtimes import Setup
from scalerl.runtimes._generator import GeneratorRole
from scalerl.runtimes._tensors import num_bytes, pack, unpack
from scalerl.runtimes._trainer import TrainerRole
from scalerl.runtimes._weights import Inbox, MemoryFile, Outbox
from scalerl.tasks import Split
from scalerl.trainers.warm_starts._bases import base

PROBE_SEQUENCES = 16
"""Held-out prompts that trainer and generator score at each push."""


def use_threads(num_threads: int) -> int:
    """Compute with so many threads in this process; returns how many it was. Results repeat bit for bit for one number only."""
    num_before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    return num_before


def make_base(setup: Setup, *, meter: Meter, between: Callable[[], None]) -> Path:
    """The folder that both roles load: the checkpoint to go on from, or the base, made if it is not there yet."""
    if setup.checkpoint is not None:
        return setup.checkpoint
    return base(setup.model, setup.task, setup.warm_start, seed=setup.seed, bases=setup.bases, meter=meter, between=between)


def generator_role(setup: Setup, folder: Path, *, file: MemoryFile | None, meter: Meter, between: Callable[[], None]) -> GeneratorRole:
    """The generator on the weights in `folder`."""
    policy = _policy(setup, folder)
    engine = setup.engine.build(
        policy,
        control=setup.control,
        prompt_tokens=setup.prompt_tokens,
        completion_tokens=setup.completion_tokens,
        seed=setup.seed,
        meter=meter,
    )
    like = policy.tensors()
    inbox = Inbox(file, num_bytes=num_bytes(like))
    return GeneratorRole(engine, inbox=inbox, unpack=partial(unpack, like=like), probe=_probe(setup, policy), meter=meter, between=between)


def trainer_role(setup: Setup, folder: Path, *, file: MemoryFile | None, meter: Meter, between: Callable[[], None]) -> TrainerRole:
    """The trainer on the weights in `folder`, with the optimizer state of the checkpoint where there is one."""
    policy = _policy(setup, folder)
    learner = setup.trainer.build(policy, objective=setup.objective, temperature=setup.engine.temperature, meter=meter)
    if setup.checkpoint is not None:
        learner.restore(setup.checkpoint)
    outbox = Outbox(file, num_bytes=num_bytes(learner.weights()))
    return TrainerRole(learner, outbox=outbox, pack=pack, probe=_probe(setup, policy), meter=meter, between=between)


def _policy(setup: Setup, folder: Path) -> Policy:
    return Policy.load(folder, head=setup.model.head, dtype=setup.model.dtype)


def _probe(setup: Setup, policy: Policy) -> Probe:
    examples = islice(setup.task.examples(Split.HELD_OUT), PROBE_SEQUENCES)
    encode = partial(policy.encode, where="probe")
    return probe_of([example.text for example in examples], encode=encode, max_tokens=setup.prompt_tokens)
