"""Tiny policies, requests, and the engine's oracle, which is a full forward pass of the Hugging Face model."""

import numpy as np
import torch

from scalerl.models.config import Config
from scalerl.records.roles import Request
from scalerl.records.rollout import Prompt
from scalerl.testing import engines
from scalerl.testing.engines import ALPHABET


def tiny_policy(**settings):
    """A decoder of 16 symbols whose weights are large enough to make its distribution uneven."""
    policy = Config(**{"hidden_size": 32, "intermediate_size": 48, "dtype": "float32"} | settings).build(alphabet=ALPHABET, seed=3)
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0 if "lm_head" in name else 4.0)
    return policy


def request(policy, group, text, *, num_completions=4, epoch=0):
    """A request to sample from `text`."""
    ids = tuple(policy.tokenizer.encode(text))
    return Request(group, Prompt(f"p{group}", "test", text, ids, "1"), epoch, num_completions)


RAGGED = ["1:", "12+34*5:", "7-8:", "123456789:", "0*0:", "9+9+9:"]


def ragged_requests(policy, **arguments):
    """Requests whose prompts have different lengths."""
    return [request(policy, group, text, **arguments) for group, text in enumerate(RAGGED)]


def run(loop, requests=()):
    """All groups of `requests`, in the order in which they finish."""
    loop.submit(requests)
    finished = []
    while loop.num_in_flight:
        finished += loop.step()
    return finished


def full_log_probs(policy, group, completion, *, temperature=1.0):
    """(T,) log-probs of a completion by one forward pass of the whole Hugging Face model, without any cache."""
    return engines.full_log_probs(policy, group.prompt.token_ids, completion.token_ids.tolist(), temperature=temperature)


def assert_log_probs(policy, groups, *, temperature=1.0):
    """Every sampled token has the log-prob of the oracle, every inserted one 0."""
    for group in groups:
        for completion in group.completions:
            expected = full_log_probs(policy, group, completion, temperature=temperature)
            expected[~completion.trainable] = 0.0
            np.testing.assert_allclose(completion.log_probs, expected, atol=1e-5)
