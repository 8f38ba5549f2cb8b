"""The drift probe: what a kept cache changes in the log-probs of completions in flight, measured on a sample of them at each push.

    before new weights are loaded, under the outgoing version v:
        compare     what the followed completions sampled under v: log p with the other cache - log p as sampled
        choose      completions that meet their first push, until enough are followed

With `keep` the other cache is one whole pass under v. With `reprefill` it is a shadow that takes in the tokens of each version
under that version and is never computed anew: the cache that `keep` would have had.

The sample is unbiased: a completion is chosen at its first push, by a draw keyed by prompt, epoch and index, and followed to
its end, which may come before the next push. Completions that meet no push have no drift. The probe keeps within its share
of the time by choosing no new ones for a while; sampling takes no notice of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scalerl.accounting.flops import causal_pairs
from scalerl.accounting.meter import Meter
from scalerl.core.random import stream_key, uniform
from scalerl.engines._body import CachedBody
from scalerl.engines._flight import Decoding, Trace
from scalerl.engines.embedded import Drift
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity
from scalerl.records.push import DRIFT_PROBE, MeasuredDrift, TokenDrift, TraceDrift
from scalerl.records.rollout import Group

_MOST_NATS = 300.0
"""A drift beyond it counts as this much, so that the square of its exponential is a number."""
_LOGITS_AT_ONCE = 2**25
"""Scores in memory at once: 128 MiB."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Name = tuple[int, int]
"""A completion: the id of its group, and which of the group's it is."""


@dataclass(slots=True)
class _Followed:
    """A completion of the sample."""

    row: int
    """Of the probe's cache."""
    num_cached: int = 0
    """Tokens that the row holds from earlier pushes; of what is computed anew none."""


class DriftProbe:
    """Measures at each push of one engine: first `measure`, then load the weights."""

    def __init__(self, policy: Policy, settings: Drift, decoding: Decoding, *, kv: Literal["keep", "reprefill"], meter: Meter) -> None:
        self._policy = policy
        self._settings = settings
        self._decoding = decoding
        self._recomputes = kv == "keep"
        self._meter = meter
        # At a push those that have ended still have their rows, while as many new ones begin.
        self._body = CachedBody(policy, num_rows=2 * settings.rows, meter=meter, detail=DRIFT_PROBE)
        self._followed: dict[_Name, _Followed] = {}
        self._ended: dict[_Name, Trace] = {}

    def take_leave(self, groups: Sequence[Group]) -> None:
        """Keep what is followed of `groups`, which leave the flight, until the next push."""
        for group in groups:
            for completion in group.completions:
                if (group.id, completion.index) in self._followed:
                    self._ended[group.id, completion.index] = Trace(group.id, group.prompt, group.epoch, completion, is_done=True)

    @torch.no_grad()
    def measure(self, flight: Iterable[Trace], *, version: int) -> MeasuredDrift | None:
        """Compare and choose under the outgoing `version`; None where there was nothing to compare.

        Args:
            flight: the completions of all groups in flight; it is not looked at while the probe has nothing to do.
        """
        if not (self._followed or self._has_time):
            return None
        with self._meter.doing(Activity.PUSH, DRIFT_PROBE):
            known = {trace.name: trace for trace in (*flight, *self._ended.values())}
            self._ended = {}
            # What is known no more was cancelled.
            old = [known[name] for name in self._followed if name in known]
            new = self._chosen(known.values(), version=version, num_kept=sum(not trace.is_done for trace in old))
            self._give_rows(new)
            drift = self._compared(old if self._recomputes else [*old, *new], version=version)
            kept = {trace.name for trace in (*old, *new) if not trace.is_done}
            self._followed = {name: followed for name, followed in self._followed.items() if name in kept}
        return drift

    @property
    def _has_time(self) -> bool:
        taken_s, allowed_s = (self._meter.total_s(*kind) for kind in ((Activity.PUSH, DRIFT_PROBE), (Activity.GENERATE,)))
        return self._settings.rows > 0 and taken_s <= self._settings.share * allowed_s

    def _chosen(self, traces: Iterable[Trace], *, version: int, num_kept: int) -> list[Trace]:
        """Completions that meet their first push, those with the lowest draws, for the places that are left."""
        if not self._has_time:
            return []
        first = [trace for trace in traces if not trace.is_done and trace.completion.first_version == version]
        first = [trace for trace in first if trace.name not in self._followed]
        return sorted(first, key=self._draw)[: self._settings.rows - num_kept]

    def _draw(self, trace: Trace) -> float:
        return float(uniform(stream_key(self._decoding.seed, DRIFT_PROBE, trace.prompt.id, trace.epoch), trace.completion.index, 0))

    def _give_rows(self, traces: Sequence[Trace]) -> None:
        used = {followed.row for followed in self._followed.values()}
        free = (row for row in range(2 * self._settings.rows) if row not in used)
        self._followed.update((trace.name, _Followed(row)) for trace, row in zip(traces, free, strict=False))

    def _compared(self, traces: Sequence[Trace], *, version: int) -> MeasuredDrift | None:
        """Let the other cache take in what it lacks of `traces`; the drift of the tokens that they sampled under `version`."""
        followed = [self._followed[trace.name] for trace in traces]
        starts = np.array([one.num_cached for one in followed], dtype=np.int64)
        ends = np.array([trace.num_cached for trace in traces], dtype=np.int64)
        if not (ends > starts).any():
            return None
        hidden = self._take_in(traces, rows=np.array([one.row for one in followed]), starts=starts, ends=ends)
        if not self._recomputes:
            for one, end in zip(followed, ends.tolist(), strict=True):
                one.num_cached = end
        positions = [_sampled_by(trace, version) for trace in traces]
        owner = np.repeat(np.arange(len(traces)), [of_trace.size for of_trace in positions])
        if not owner.size:
            return None
        pairs = list(zip(traces, positions, strict=True))
        predictors = [len(trace.prompt.token_ids) + at - 1 - start for (trace, at), start in zip(pairs, starts, strict=True)]
        columns, tokens, sampled = (
            np.concatenate(parts)
            for parts in (predictors, [t.completion.token_ids[at] for t, at in pairs], [t.completion.log_probs[at] for t, at in pairs])
        )
        drift = (self._log_probs(hidden, owner, columns, tokens) - sampled).clip(-_MOST_NATS, _MOST_NATS)
        distances = np.array([version - trace.completion.first_version for trace in traces])
        num_tokens, num_pairs = (int(ends.sum()), int(causal_pairs(ends).sum())) if self._recomputes else (0, 0)
        return MeasuredDrift(
            _by_token(drift, distances=distances[owner], positions=np.concatenate(positions)),
            _by_trace(drift, owner=owner, distances=distances),
            recomputed_tokens=num_tokens,
            recomputed_pairs=num_pairs,
        )

    def _take_in(self, traces: Sequence[Trace], *, rows: Ints, starts: Ints, ends: Ints) -> Tensor:
        """(N, W, H) hidden states of the tokens from (N,) `starts` to `ends` of N traces, in `rows` of the probe's cache."""
        num_new = ends - starts
        ids = np.full((len(traces), int(num_new.max())), self._policy.pad_id, dtype=np.int64)
        for i, trace in enumerate(traces):
            sequence = np.concatenate((trace.prompt.token_ids, trace.completion.token_ids))
            ids[i, : num_new[i]] = sequence[starts[i] : ends[i]]
        self._meter.count(Activity.PUSH, tokens=int(num_new.sum()), detail=DRIFT_PROBE)
        return self._body.extend(rows, ids, starts=starts, num_new=num_new, activity=Activity.PUSH)

    def _log_probs(self, hidden: Tensor, rows: Ints, columns: Ints, tokens: Ints) -> Floats:
        """(M,) log-probabilities in nats of M `tokens`, each predicted by the state at its row and column of `hidden`."""
        predictors, targets = hidden[rows, columns], torch.from_numpy(tokens.astype(np.int64)).to(hidden.device)
        at_once = max(1, _LOGITS_AT_ONCE // int(self._policy.config.vocab_size))
        found = []
        for some, ids in zip(predictors.split(at_once), targets.split(at_once), strict=True):
            logits = self._body.logits(some, activity=Activity.PUSH) / self._decoding.temperature
            found.append(torch.log_softmax(logits, dim=-1).gather(-1, ids[:, None])[:, 0])
        log_probs: Floats = torch.cat(found).double().cpu().numpy()
        return log_probs


def _sampled_by(trace: Trace, version: int) -> Ints:
    """Positions of the tokens that `version` sampled, where it is not the first: before it the caches are one."""
    completion = trace.completion
    versions = np.repeat([one for one, _ in completion.version_runs], [count for _, count in completion.version_runs])
    return np.flatnonzero(completion.trainable & (versions == version) & (completion.first_version < version))


def _by_token(drift: Floats, *, distances: Ints, positions: Ints) -> tuple[TokenDrift, ...]:
    """The sums of (M,) tokens, by distance and range of positions."""
    buckets = np.frexp(positions + 1.0)[1] - 1  # the whole part of the logarithm to the base 2
    weights = np.exp(drift)
    sums = []
    for distance, bucket in sorted(set(zip(distances.tolist(), buckets.tolist(), strict=True))):
        at = (distances == distance) & (buckets == bucket)
        columns = (drift[at], drift[at] ** 2, weights[at] - 1.0 - drift[at], weights[at], weights[at] ** 2)
        sums.append(TokenDrift(distance, bucket, int(np.count_nonzero(at)), *(float(column.sum()) for column in columns)))
    return tuple(sums)


def _by_trace(drift: Floats, *, owner: Ints, distances: Ints) -> tuple[TraceDrift, ...]:
    """The sums of the traces that (M,) `owner` names, by their (N,) `distances`; a weight is the product over a trace's tokens."""
    present = np.unique(owner)
    weights = np.exp(np.bincount(owner, weights=drift)[present].clip(-_MOST_NATS, _MOST_NATS))
    return tuple(
        TraceDrift(distance, int(np.count_nonzero(at)), float(weights[at].sum()), float((weights[at] ** 2).sum()))
        for distance in np.unique(distances[present]).tolist()
        for at in [distances[present] == distance]
    )
