"""What engines are tested against: a tiny policy, weights that change, and log-probs from full forward passes of its model.

served = Served(engine, control=Truncation())
groups = served.finish(served.requests(["1+2:"]))
served.exact_log_probs(groups[0], groups[0].completions[0])
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from scalerl.accounting.meter import Meter
from scalerl.core.clock import SystemClock
from scalerl.engines import Engine, TokenIds
from scalerl.models._policy import Policy
from scalerl.models.config import Config
from scalerl.objective.length_controls import LengthControl
from scalerl.records.cost import Activity, Cost
from scalerl.records.roles import Request
from scalerl.records.rollout import Completion, Group, Prompt

ALPHABET = "0123456789+-*:=."
PROMPT_TOKENS, COMPLETION_TOKENS = 320, 12
"""A prompt may be longer than a block of any paged cache."""

LogProbs = NDArray[np.float32]


def tiny_policy() -> Policy:
    """A decoder of 16 symbols and heads of 32 channels, whose weights are large enough to make its distribution uneven."""
    settings = Config(hidden_size=64, num_heads=2, num_kv_heads=1, intermediate_size=48, max_tokens=512, dtype="float32")
    policy = settings.build(alphabet=ALPHABET, seed=3)
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0 if "lm_head" in name else 4.0)
    # What an engine must not heed: log-probs are those of all tokens at its own temperature.
    policy.module.generation_config.update(temperature=0.1, top_k=1, top_p=0.1, repetition_penalty=5.0)
    return policy


class Served:
    """An engine at work on a tiny policy, with the policy of every version beside it."""

    def __init__(self, engine: Engine, *, control: LengthControl) -> None:
        self.engine = engine
        self.completion_tokens = COMPLETION_TOKENS
        self.policy = tiny_policy()
        self.policies = [self.policy]
        """By version."""
        self.meter = Meter("generator:0", clock=SystemClock())
        self.loop = engine.build(
            copy.deepcopy(self.policy),
            control=control,
            prompt_tokens=PROMPT_TOKENS,
            completion_tokens=COMPLETION_TOKENS,
            seed=0,
            meter=self.meter,
        )
        self.finish(self.requests(["1:"]))  # It may take a while to start.
        self.meter.collect()

    def push(self, *, seed: int | None = None, size: float = 0.05) -> list[Group]:
        """New weights: those of version 0 with noise from `seed`, or without any. Returns what finished on the way."""
        policy = copy.deepcopy(self.policy)
        if seed is not None:
            policy.load_tensors(noisy(policy, seed=seed, size=size))
        self.policies.append(policy)
        return self.loop.take_weights(self.loop.version + 1, policy.tensors(), between=_nothing)

    def requests(self, texts: Sequence[str], *, first: int = 0, epoch: int = 0, num_completions: int = 4) -> list[Request]:
        """Requests to sample from `texts`; a prompt's id is its text."""
        return [
            Request(first + number, Prompt(text, "test", text, self.encode(text), "1"), epoch, num_completions)
            for number, text in enumerate(texts)
        ]

    def encode(self, text: str) -> TokenIds:
        """Its tokens."""
        return self.policy.encode(text, where="test")

    def finish(self, new: Sequence[Request] = (), *, pushes: Sequence[tuple[int, int]] = ()) -> list[Group]:
        """Submit `new` and step until nothing is in flight; a push (step, seed) comes once so many steps have sampled tokens."""
        self.loop.submit(new)
        finished: list[Group] = []
        for step, seed in pushes:
            finished += self.steps(step) + self.push(seed=seed)
        while self.loop.num_in_flight:
            finished += self.loop.step()
        return finished

    def steps(self, number: int) -> list[Group]:
        """What so many steps finish."""
        return [group for _ in range(number) for group in self.loop.step()]

    def costs(self) -> dict[Activity, Cost]:
        """What was booked since the last call, by activity."""
        costs: dict[Activity, Cost] = {}
        for cost in self.meter.collect():
            costs[cost.activity] = cost
        return costs

    def full_log_probs(self, prompt: TokenIds, continuation: TokenIds, *, version: int) -> LogProbs:
        """(T,) log-probs of a continuation under the weights of `version`, at the engine's temperature."""
        return full_log_probs(self.policies[version], prompt, continuation, temperature=self.engine.temperature)

    def exact_log_probs(self, group: Group, completion: Completion) -> LogProbs:
        """(T,) log-probs of each token, its whole past computed under the version that sampled it; 0 for inserted tokens."""
        expected = np.zeros(len(completion.token_ids), np.float32)
        versions = np.array(token_versions(completion))
        for version in set(versions.tolist()):
            full = self.full_log_probs(group.prompt.token_ids, tuple(completion.token_ids.tolist()), version=version)
            expected = np.where((versions == version) & completion.trainable, full, expected)
        return expected

    def kept_log_probs(self, group: Group, completion: Completion) -> LogProbs:
        """(T,) log-probs of each token under caches that pushes leave alone, at the engine's temperature."""
        return kept_log_probs(self.policies, group, completion, temperature=self.engine.temperature)


def full_log_probs(policy: Policy, prompt: TokenIds, continuation: TokenIds, *, temperature: float = 1.0) -> LogProbs:
    """(T,) log-probs of a continuation by one forward pass of the whole Hugging Face model, without any cache."""
    ids = torch.tensor([[*prompt, *continuation]])
    with torch.no_grad():
        logits = policy.module(input_ids=ids).logits[0].float() / temperature
    log_probs: LogProbs = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(-1, ids[0, len(prompt) :, None])[:, 0].numpy()
    return log_probs


def kept_log_probs(policies: Sequence[Policy], group: Group, completion: Completion, *, temperature: float = 1.0) -> LogProbs:
    """(T,) log-probs of each token, the keys of its past computed by the version in use as each was fed, and never again.

    Args:
        policies: by version.
    """
    cache, fed, log_probs = DynamicCache(), list(group.prompt.token_ids), []
    for token, version in zip(completion.token_ids.tolist(), token_versions(completion), strict=True):
        module = policies[version].module
        with torch.no_grad():
            logits = module(input_ids=torch.tensor([fed]), use_cache=True, **{_cache_name(module): cache}).logits[0, -1]
        log_probs.append((logits / temperature).log_softmax(-1)[token].item())
        fed = [token]
    return np.array(log_probs, dtype=np.float32)


def token_versions(completion: Completion) -> list[int]:
    """The version that sampled each token."""
    return [version for version, count in completion.version_runs for _ in range(count)]


def noisy(policy: Policy, *, seed: int = 1, size: float = 0.05) -> dict[str, Tensor]:
    """Weights near those of `policy`: what a trainer might push."""
    generator = torch.Generator().manual_seed(seed)
    return {name: tensor + size * torch.randn(tensor.shape, generator=generator) for name, tensor in policy.tensors().items()}


def _cache_name(module: Any) -> str:
    """Renamed within transformers 5."""
    return "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"


def _nothing() -> None:
    """Between steps there is nobody to listen to."""
