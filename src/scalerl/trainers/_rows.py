"""From a batch to padded micro-batches: every completion once, in one piece, with a weight that no cut can change.

A row is a prompt and a completion. The last token is predicted and never read, so a row of P + T tokens has P + T - 1
inputs; after a prompt that was read before, T - 1. They are padded on the right, where nothing looks. The states that
predict are gathered before the head: no logits are made of prompts, inserted tokens and padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from scalerl.accounting.flops import ModelFlops, causal_pairs
from scalerl.objective import Objective
from scalerl.objective.advantages.critic import Critic
from scalerl.records.rollout import Batch, Completion

_PASS_TOKENS = 128
"""Padding that costs as much as one more forward and backward pass does beside its tokens (2 to 8 ms on a CPU core)."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """P prompt and T completion tokens, and what they bring to the loss."""

    token_ids: NDArray[np.int64]
    """(P + T,)"""
    num_prompt_tokens: int
    trainable: NDArray[np.bool_]
    """(T,) the tokens whose log-probability is asked for."""
    behaviour: NDArray[np.float32]
    """(T,) log pi_gen in nats."""
    versions: NDArray[np.int64]
    """(T,) which weights sampled each token."""
    advantages: NDArray[np.float64]
    """(T,)"""
    weight: float = 1.0
    """Of each single trainable token in the loss."""
    reward: float = math.nan
    """The completion's score."""
    group: int = 0
    """Place of its group in the batch."""
    reference: NDArray[np.float64] | None = None
    """(T,) log pi_ref in nats of the trainable tokens, where a term asks for it."""

    @classmethod
    def of(cls, prompt: ArrayLike, completion: ArrayLike, *, weight: float = 1.0) -> Self:
        """A row that is trained on as a whole, without a generator: a demonstration, or a sequence to score."""
        continuation = np.asarray(completion, np.int64)
        token_ids = np.concatenate([np.asarray(prompt, np.int64), continuation])
        num_tokens = continuation.size
        return cls(
            token_ids,
            token_ids.size - num_tokens,
            trainable=np.ones(num_tokens, np.bool_),
            behaviour=np.zeros(num_tokens, np.float32),
            versions=np.zeros(num_tokens, np.int64),
            advantages=np.ones(num_tokens),
            weight=weight,
        )

    @property
    def prompt(self) -> NDArray[np.int64]:
        """(P,)"""
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.trainable.size

    @property
    def num_inputs(self) -> int:
        """Tokens that the body reads of a whole row."""
        return self.token_ids.size - 1

    def over_own(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(T,) with `values` at the trainable tokens, and 0 elsewhere."""
        spread = np.zeros(self.num_tokens)
        spread[self.trainable] = values
        return spread


@dataclass(frozen=True, slots=True)
class Work:
    """What a forward pass was for, and what it did in all."""

    num_tokens: int
    num_pairs: int
    """(token, key) pairs of attention."""
    num_logits: int
    num_tokens_done: int
    num_pairs_done: int

    @classmethod
    def of_whole(cls, lengths: NDArray[np.int64], *, width: int, num_logits: int) -> Self:
        """Whole sequences of (N,) `lengths`, padded to `width`; a causal kernel leaves out what lies above the diagonal."""
        done = np.full_like(lengths, width)
        pairs, pairs_done = (int(causal_pairs(one).sum()) for one in (lengths, done))
        return cls(int(lengths.sum()), pairs, num_logits, int(done.sum()), pairs_done)

    @classmethod
    def of_rest(cls, lengths: NDArray[np.int64], *, starts: NDArray[np.int64], width: int, context: int, num_logits: int) -> Self:
        """(N,) `lengths` tokens after `starts` others, padded to `width` queries of `context` keys each, a mask over all of them."""
        pairs = int(causal_pairs(starts + lengths, start=starts).sum())
        num_done = lengths.size * width
        return cls(int(lengths.sum()), pairs, num_logits, num_done, num_done * context)

    def forward_flops(self, flops: ModelFlops) -> tuple[float, float]:
        """FLOPs of the pass: on what it was for, and on the rest."""
        useful = flops.forward(num_tokens=self.num_tokens, num_pairs=self.num_pairs, num_logits=self.num_logits)
        done = flops.forward(num_tokens=self.num_tokens_done, num_pairs=self.num_pairs_done, num_logits=self.num_logits)
        return useful, done - useful


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """N rows padded to L inputs and T completion tokens, M of which are trainable."""

    rows: Sequence[Row]
    input_ids: Tensor
    """(N, L)"""
    starts: NDArray[np.int64]
    """(N,) tokens of each row that were read before: none, or its prompt."""
    predictors: Tensor
    """(M,) place of the state that predicts each trainable token: among N x L, or N x (L + 1) with those of the prompts first."""
    targets: Tensor
    """(M,) the trainable tokens, row by row."""
    mask: Tensor
    """(N, T) True where a trainable token stands."""
    behaviour: Tensor
    """(N, T)"""
    versions: NDArray[np.int64]
    """(M,) which weights sampled each trainable token."""
    advantages: Tensor
    """(N, T)"""
    weights: Tensor
    """(N, 1) of each single trainable token."""
    reference: Tensor | None
    """(N, T)"""
    work: Work
    """Of one forward pass."""

    def spread(self, values: Tensor) -> Tensor:
        """(N, T) with the (M,) `values` of the trainable tokens at their places, and 0 elsewhere."""
        return values.new_zeros(self.mask.shape).masked_scatter(self.mask, values)

    def split(self, values: Tensor) -> list[NDArray[np.float64]]:
        """The (M,) `values` of the trainable tokens, row by row."""
        array: NDArray[np.float64] = values.double().cpu().numpy()
        return np.split(array, np.cumsum(self.mask.sum(1).cpu().numpy())[:-1])


def batch_rows(batch: Batch, *, objective: Objective) -> list[Row]:
    """The completions of `batch` that have a score and trainable tokens; advantages and weights are those of the whole batch.

    The advantages that a critic gives are left at 0: it gives them token by token.
    """
    groups = batch.groups
    scores = [np.array([_value(completion) for completion in group.completions]) for group in groups]
    counts = [np.array([_num_trained(completion) for completion in group.completions], np.int64) for group in groups]
    has_critic = isinstance(objective.advantage, Critic)
    advantages = [np.zeros(one.size) for one in scores] if has_critic else objective.advantage.advantages(scores)
    weights = objective.aggregation.weights(counts)
    rows = []
    for place, group in enumerate(groups):
        prompt = np.asarray(group.prompt.token_ids, np.int64)
        for index in np.flatnonzero(counts[place]):
            completion = group.completions[index]
            rows.append(
                Row(
                    np.concatenate([prompt, completion.token_ids]),
                    prompt.size,
                    trainable=completion.trainable,
                    behaviour=completion.log_probs,
                    versions=np.repeat(*np.array(completion.version_runs, np.int64).T),
                    advantages=np.full(completion.trainable.size, advantages[place][index]),
                    weight=float(weights[place][index]),
                    reward=float(scores[place][index]),
                    group=place,
                )
            )
    return rows


def cut(rows: Sequence[Row], *, max_tokens: int, length: Callable[[Row], int]) -> list[list[Row]]:
    """Rows of like `length` together, at most `max_tokens` in sum but for a row that is longer by itself.

    The longest come first: what does not fit into memory shows at once. A piece ends where its padding has cost what another
    piece would, so the two together are at most twice what the best cut costs.
    """
    chunks: list[list[Row]] = []
    room, longest, num_padding = 0, 0, 0
    for row in sorted(rows, key=length, reverse=True):
        num_tokens = length(row)
        num_padding += longest - num_tokens
        if not chunks or num_tokens > room or num_padding > _PASS_TOKENS:
            chunks.append([])
            room, longest, num_padding = max_tokens, num_tokens, 0
        chunks[-1].append(row)
        room -= num_tokens
    return chunks


def pad(rows: Sequence[Row], *, pad_id: int, device: torch.device, after: int | None = None) -> MicroBatch:
    """The rows as tensors on `device`: whole, or what follows prompts that were read before, padded to `after` tokens."""
    num_prompt_tokens = np.array([row.num_prompt_tokens for row in rows])
    num_tokens = np.array([row.num_tokens for row in rows])
    starts = np.zeros_like(num_tokens) if after is None else num_prompt_tokens
    num_inputs = num_prompt_tokens + num_tokens - 1 - starts
    # Completions of one token have no input: a pass over nothing is none that the modules know.
    width, num_most = max(1, int(num_inputs.max())), int(num_tokens.max())
    of_own = {name: padded([getattr(row, name) for row in rows], width=num_most) for name in ("trainable", "behaviour", "versions")}
    mask = of_own["trainable"]
    targets = padded([row.token_ids[row.num_prompt_tokens :] for row in rows], width=num_most)[mask]
    of_row, at_token = np.nonzero(mask)
    predictors = of_row * width + num_prompt_tokens[of_row] - 1 + at_token if after is None else of_row * (width + 1) + at_token
    references = [row.reference for row in rows if row.reference is not None]
    num_logits = len(targets)

    def tensor(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return MicroBatch(
        rows=rows,
        input_ids=tensor(padded([row.token_ids[start:-1] for row, start in zip(rows, starts, strict=True)], width=width, fill=pad_id)),
        starts=starts,
        predictors=tensor(predictors),
        targets=tensor(targets),
        mask=tensor(mask),
        behaviour=tensor(of_own["behaviour"]),
        versions=of_own["versions"][mask],
        advantages=tensor(padded([row.advantages.astype(np.float32) for row in rows], width=num_most)),
        weights=tensor(np.array([[row.weight] for row in rows], np.float32)),
        reference=tensor(padded(references, width=num_most)) if references else None,
        work=Work.of_whole(num_inputs, width=width, num_logits=num_logits)
        if after is None
        else Work.of_rest(num_inputs, starts=starts, width=width, context=after + width, num_logits=num_logits),
    )


def padded(arrays: Sequence[NDArray[Any]], *, width: int, fill: int = 0) -> NDArray[Any]:
    """(N, width) with each of N arrays at the beginning of its row, and `fill` after it."""
    lengths = np.array([array.size for array in arrays])
    table = np.full((len(arrays), width), fill, arrays[0].dtype)
    table[np.arange(width) < lengths[:, None]] = np.concatenate(arrays)
    return table


def _value(completion: Completion) -> float:
    assert completion.score is not None, "what is trained on has been graded"
    return np.nan if completion.score.value is None else completion.score.value


def _num_trained(completion: Completion) -> int:
    """Unmasked tokens; none where the grader failed: absence is not zero."""
    return 0 if np.isnan(_value(completion)) else int(np.count_nonzero(completion.trainable))
