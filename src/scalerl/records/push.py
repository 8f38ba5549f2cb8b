"""A push as the generator met it: what was in flight, how long decoding stood still, and what a kept cache changes.

The *drift* of a token is log p(token | the other cache) - log p(token | the cache that it was sampled with), both under one
version: what a kept cache changes in the log-probs of a completion in flight, seen from either policy.

    kv          sampled with        the other cache
    keep        the kept cache      recomputed under the version that sampled the token
    reprefill   the recomputed one  kept: every part under the version in use when it was first computed

With w = exp(drift) the mean of w - 1 - log w estimates the KL divergence from the sampling distribution to the other one without
bias (k3), and (sum w)^2 / (N sum w^2) is the effective sample size of N tokens weighted as if the other had sampled them.
"""

from __future__ import annotations

import msgspec

DRIFT_PROBE = "drift probe"
"""What the books call the time that measuring it takes: a detail of the push."""


class TokenDrift(msgspec.Struct, frozen=True, array_like=True):
    """Sums over tokens of one version distance and one range of positions, in nats."""

    distance: int
    """Versions between the first token of the completion and the version that sampled these."""
    bucket: int
    """Positions 2^bucket - 1 to 2^(bucket + 1) - 2 of the completion, counted from 0."""
    num_tokens: int
    drift: float
    drift_square: float
    k3: float
    weight: float
    weight_square: float


class TraceDrift(msgspec.Struct, frozen=True, array_like=True):
    """Sums over completions of one distance; a weight is the product over the tokens that one version sampled."""

    distance: int
    num_traces: int
    weight: float
    weight_square: float


class MeasuredDrift(msgspec.Struct, frozen=True):
    """What the drift probe found at one push."""

    tokens: tuple[TokenDrift, ...]
    traces: tuple[TraceDrift, ...]
    recomputed_tokens: int = 0
    """Tokens that the probe computed anew as a re-prefill does; 0 where it extends a kept cache instead."""
    recomputed_pairs: int = 0
    """(token, key) pairs of their attention."""


class Push(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a push met in one generator."""

    num_rows: int = 0
    """Completions in flight."""
    prompt_tokens: int = 0
    """Sum of the tokens of their prompts."""
    generated_tokens: int = 0
    """Sum of their generated tokens but the last, which the next step feeds."""
    reprefill_tokens: int = 0
    """Tokens that computing their caches anew takes, or took; a prompt that rows share counts as often as it is computed."""
    reprefill_pairs: int = 0
    """(token, key) pairs of that."""
    waited_s: float = 0.0
    """Seconds for which no request was admitted or decoded for the push: taking weights, re-prefill or drain, the probes left out."""
    drift: MeasuredDrift | None = None
    """None where nothing was sampled: no update in flight, no probe, or a drained engine."""
