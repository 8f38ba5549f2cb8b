"""Roles that cost nothing, built where `scalerl.runtimes._build` builds real ones: no torch, no weights to load.

A request is answered after one decode step for each token of its prompt, and one whose text is `endless` never. A text of
`refuse` makes the engine raise a ScalerlError, one of `break` some other error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scalerl.accounting.meter import Meter
from scalerl.core.clock import ManualClock
from scalerl.core.errors import DataError
from scalerl.engines.embedded import Embedded
from scalerl.models.config import Config
from scalerl.objective import Objective
from scalerl.objective.advantages.centred import Centred
from scalerl.objective.aggregations.prompt import Prompt as PromptAverage
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.objective.losses.cispo import Cispo
from scalerl.records.cost import Activity
from scalerl.records.push import Push
from scalerl.records.roles import Request
from scalerl.records.rollout import Batch, Completion, Group, Prompt
from scalerl.runtimes import Setup
from scalerl.runtimes._generator import GeneratorRole
from scalerl.runtimes._trainer import TrainerRole
from scalerl.runtimes._weights import Inbox, MemoryFile, Outbox
from scalerl.tasks.chain import Chain
from scalerl.trainers import AdamW
from scalerl.trainers.single import Single

NUM_BYTES = 10_000
PROBE = [((1, 2), (3, 4))]


def setup(bases: Path, **changes: Any) -> Setup:
    """A run of the tiny model on a small task; real roles can be built from it as well as fakes."""
    settings: dict[str, Any] = {
        "seed": 3,
        "model": Config(dtype="float32"),
        "task": Chain(num_prompts=64, num_held_out=32),
        "warm_start": None,
        "control": Truncation(),
        "prompt_tokens": 16,
        "completion_tokens": 12,
        "objective": Objective(loss=Cispo(), advantage=Centred(), aggregation=PromptAverage()),
        "engine": Embedded(slots=64),
        "trainer": Single(optimizer=AdamW(learning_rate=1e-2, warmup_steps=1), micro_batch_tokens=4096),
        "bases": bases,
    }
    return Setup(**settings | changes)


def request(group: int, text: str = "1+1:", *, num_tokens: int = 3) -> Request:
    prompt = Prompt(f"p{group}", "chain", text, tuple(range(num_tokens)), "2")
    return Request(group, prompt, epoch=0, num_completions=2)


def batch(*groups: int) -> Batch:
    return Batch(0, tuple(finished_group(request(group), 0) for group in groups))


def finished_group(request: Request, version: int) -> Group:
    """What the fake engine makes of a request: as many tokens as its prompt has."""
    tokens = np.array(request.prompt.token_ids, np.int32)
    completions = tuple(
        Completion(index, tokens, -np.ones(tokens.size, np.float32), np.ones(tokens.size, np.bool_), ((version, tokens.size),), True)
        for index in range(request.num_completions)
    )
    return Group(request.group, request.prompt, request.epoch, completions)


class FakeLoop:
    """Decodes all requests at once, a token a step."""

    def __init__(self, meter: Meter) -> None:
        self.version = 0
        self.num_steps = 0
        self.last_push = Push()
        self.weights = b""
        self._meter = meter
        self._flight: list[tuple[Request, int]] = []
        self._evaluation: list[tuple[Request, int]] = []
        self._evaluated_version = 0

    @property
    def num_in_flight(self) -> int:
        return len(self._flight)

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.prompt.text == "refuse":
                raise DataError("the prompt is refused", where="prompt", remedy="ask nicely")
            if request.prompt.text == "break":
                raise ZeroDivisionError("the engine\nbroke")
        self._flight += [(request, len(request.prompt.token_ids)) for request in requests]

    def cancel(self, groups: Collection[int]) -> None:
        self._flight = [(request, left) for request, left in self._flight if request.group not in groups]

    def step(self) -> list[Group]:
        self.num_steps += 1
        with self._meter.doing(Activity.GENERATE):
            self._flight = [(request, left - (request.prompt.text != "endless")) for request, left in self._flight]
            done = [finished_group(request, self.version) for request, left in self._flight if not left]
            self._flight = [(request, left) for request, left in self._flight if left]
        return done

    def take_weights(self, version: int, tensors: Mapping[str, Any], *, between: Callable[[], None]) -> list[Group]:
        between()
        self.version = version
        self.weights = bytes(tensors["all"])
        return []

    def begin_evaluation(self, requests: Sequence[Request]) -> None:
        self._evaluation = [(request, len(request.prompt.token_ids)) for request in requests]
        self._evaluated_version = self.version

    def step_evaluation(self) -> list[Group]:
        self._evaluation = [(request, left - 1) for request, left in self._evaluation]
        done = [finished_group(request, self._evaluated_version) for request, left in self._evaluation if not left]
        self._evaluation = [(request, left) for request, left in self._evaluation if left]
        return done

    def score(self, probe: Any) -> Any:
        """The first bytes of the weights: both sides of a push agree if these arrived."""
        return np.frombuffer(self.weights[:8] or bytes(8), np.uint8).astype(np.float32)


class FakeLearner:
    """Its weights are bytes that tell the version; its metrics tell its process id."""

    def __init__(self) -> None:
        self.version = 0

    def train(self, batch: Batch, *, between: Callable[[], None]) -> dict[str, float | None]:
        between()
        self.version += 1
        return {"groups": float(len(batch.groups)), "pid": float(os.getpid())}

    def weights(self) -> Mapping[str, Any]:
        return {"all": bytes([self.version % 256]) * NUM_BYTES}

    def score(self, probe: Any) -> Any:
        return np.frombuffer(self.weights()["all"][:8], np.uint8).astype(np.float32)

    def save(self, folder: Path) -> None:
        (folder / "version").write_text(str(self.version))

    def restore(self, folder: Path) -> None:
        self.version = int((folder / "version").read_text())


def fake_generator(*, file: MemoryFile | None = None, meter: Meter | None = None, between: Callable[[], None] = lambda: None) -> Any:
    """A generator role and its engine."""
    meter = meter or Meter("generator:0", clock=ManualClock())
    engine = FakeLoop(meter)
    inbox = Inbox(file, num_bytes=NUM_BYTES)
    role = GeneratorRole(engine, inbox=inbox, unpack=lambda content: {"all": content}, probe=PROBE, meter=meter, between=between)
    return role, engine


def fake_trainer(*, file: MemoryFile | None = None, meter: Meter | None = None, between: Callable[[], None] = lambda: None) -> TrainerRole:
    meter = meter or Meter("trainer:0", clock=ManualClock())
    outbox = Outbox(file, num_bytes=NUM_BYTES)
    return TrainerRole(
        FakeLearner(), outbox=outbox, pack=lambda tensors: [memoryview(tensors["all"])], probe=PROBE, meter=meter, between=between
    )


def use_threads(num_threads: int) -> int:
    return num_threads


def make_base(setup: Setup, *, meter: Meter, between: Callable[[], None]) -> Path:
    between()
    if not setup.bases.is_dir():
        raise DataError("there is no base", where=str(setup.bases))
    return setup.bases


def generator_role(setup: Setup, folder: Path, *, file: MemoryFile | None, meter: Meter, between: Callable[[], None]) -> GeneratorRole:
    assert folder == setup.bases
    role: GeneratorRole = fake_generator(file=file, meter=meter, between=between)[0]
    return role


def trainer_role(setup: Setup, folder: Path, *, file: MemoryFile | None, meter: Meter, between: Callable[[], None]) -> TrainerRole:
    assert folder == setup.bases
    return fake_trainer(file=file, meter=meter, between=between)
