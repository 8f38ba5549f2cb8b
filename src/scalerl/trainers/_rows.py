"""From a batch to padded micro-batches: every completion once, in one piece, with a weight that no cut can change.

A row is a prompt and a completion. The last token is predicted and never read, so a row of P + T tokens has P + T - 1
inputs; they are padded on the right, where a causal body needs no mask. The states that predict are gathered before the
head: no logits are made of prompts, inserted tokens and padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from scalerl.accounting.flops import ModelFlops, causal_pairs
from scalerl.accounting.meter import Meter
from scalerl.objective.advantages import Advantage
from scalerl.objective.aggregations import Aggregation
from scalerl.records.cost import Activity
from scalerl.records.rollout import Batch, Completion

BACKWARD_PER_FORWARD = 2
"""A matmul has two gradients, of its input and of its weight."""


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
    advantage: float = 1.0
    weight: float = 1.0
    """Of each single trainable token in the loss."""

    @classmethod
    def of(cls, prompt: ArrayLike, completion: ArrayLike, *, weight: float = 1.0) -> Self:
        """A row that is trained on as a whole, without a generator: a demonstration, or a sequence to score."""
        continuation = np.asarray(completion, np.int64)
        token_ids = np.concatenate([np.asarray(prompt, np.int64), continuation])
        num_tokens = continuation.size
        return cls(token_ids, token_ids.size - num_tokens, np.ones(num_tokens, np.bool_), np.zeros(num_tokens, np.float32), weight=weight)

    @property
    def num_inputs(self) -> int:
        """Tokens that the body reads."""
        return self.token_ids.size - 1


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """N rows padded to L inputs and T completion tokens, M of which are trainable."""

    input_ids: Tensor
    """(N, L)"""
    predictors: Tensor
    """(M,) where in the N x L states the one stands that predicts each trainable token."""
    targets: Tensor
    """(M,) the trainable tokens, row by row."""
    mask: Tensor
    """(N, T) True where a trainable token stands."""
    behaviour: Tensor
    """(N, T)"""
    advantages: Tensor
    """(N, 1)"""
    weights: Tensor
    """(N, 1) of each single trainable token."""
    num_inputs: NDArray[np.int64]
    """(N,) inputs of each row without padding."""

    def spread(self, values: Tensor) -> Tensor:
        """(N, T) with the (M,) `values` of the trainable tokens at their places, and 0 elsewhere."""
        return values.new_zeros(self.mask.shape).masked_scatter(self.mask, values)

    def book(self, meter: Meter, activity: Activity, *, flops: ModelFlops) -> None:
        """Count a forward and a backward pass on these rows, and the trainable tokens."""
        useful, padding = self.forward_flops(flops)
        passes = 1 + BACKWARD_PER_FORWARD
        meter.count(activity, flops=passes * useful, overhead_flops=passes * padding, tokens=len(self.targets))

    def forward_flops(self, flops: ModelFlops) -> tuple[float, float]:
        """FLOPs of one forward pass: on tokens, and on padding."""
        longest = np.full_like(self.num_inputs, self.input_ids.shape[1])
        num_tokens, num_pairs = int(self.num_inputs.sum()), int(causal_pairs(self.num_inputs).sum())
        num_padding, num_padding_pairs = int(longest.sum()) - num_tokens, int(causal_pairs(longest).sum()) - num_pairs
        useful = flops.forward(num_tokens=num_tokens, num_pairs=num_pairs, num_logits=len(self.targets))
        return useful, flops.forward(num_tokens=num_padding, num_pairs=num_padding_pairs, num_logits=0)


def batch_rows(batch: Batch, *, advantage: Advantage, aggregation: Aggregation) -> list[Row]:
    """The completions of `batch` that have a score and trainable tokens; advantages and weights are those of the whole batch."""
    groups = batch.groups
    values = [np.array([_value(completion) for completion in group.completions]) for group in groups]
    counts = [np.array([_num_trained(completion) for completion in group.completions], np.int64) for group in groups]
    rows = []
    for group, advantages, weights, num_tokens in zip(
        groups, advantage.advantages(values), aggregation.weights(counts), counts, strict=True
    ):
        prompt = np.asarray(group.prompt.token_ids, np.int64)
        for index in np.flatnonzero(num_tokens):
            completion = group.completions[index]
            rows.append(
                Row(
                    np.concatenate([prompt, completion.token_ids]),
                    prompt.size,
                    completion.trainable,
                    completion.log_probs,
                    float(advantages[index]),
                    float(weights[index]),
                )
            )
    return rows


def cut(rows: Sequence[Row], *, max_tokens: int) -> list[list[Row]]:
    """Rows of like length together, at most `max_tokens` inputs each but for a row that is longer by itself.

    The longest come first: what does not fit into memory shows at once.
    """
    chunks: list[list[Row]] = []
    room = 0
    for row in sorted(rows, key=lambda row: row.num_inputs, reverse=True):
        if not chunks or row.num_inputs > room:
            chunks.append([])
            room = max_tokens
        chunks[-1].append(row)
        room -= row.num_inputs
    return chunks


def pad(rows: Sequence[Row], *, pad_id: int, device: torch.device) -> MicroBatch:
    """The rows as tensors on `device`."""
    num_inputs = np.array([row.num_inputs for row in rows])
    first_predictors = np.array([row.num_prompt_tokens for row in rows]) - 1
    num_tokens = np.array([row.trainable.size for row in rows])
    mask = _padded([row.trainable for row in rows], num_tokens, fill=False)
    targets = _padded([row.token_ids[row.num_prompt_tokens :] for row in rows], num_tokens, fill=pad_id)
    of_row, at_token = np.nonzero(mask)
    predictors = of_row * num_inputs.max() + first_predictors[of_row] + at_token
    columns = np.array([(row.advantage, row.weight) for row in rows], np.float32)

    def tensor(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return MicroBatch(
        input_ids=tensor(_padded([row.token_ids[:-1] for row in rows], num_inputs, fill=pad_id)),
        predictors=tensor(predictors),
        targets=tensor(targets[mask]),
        mask=tensor(mask),
        behaviour=tensor(_padded([row.behaviour for row in rows], num_tokens, fill=0.0)),
        advantages=tensor(columns[:, :1]),
        weights=tensor(columns[:, 1:]),
        num_inputs=num_inputs,
    )


def _padded(arrays: Sequence[NDArray[Any]], lengths: NDArray[np.int64], *, fill: float) -> NDArray[Any]:
    padded = np.full((len(arrays), lengths.max()), fill, arrays[0].dtype)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(arrays)
    return padded


def _value(completion: Completion) -> float:
    assert completion.score is not None, "what is trained on has been graded"
    return np.nan if completion.score.value is None else completion.score.value


def _num_trained(completion: Completion) -> int:
    """Unmasked tokens; none where the grader failed: absence is not zero."""
    return 0 if np.isnan(_value(completion)) else int(np.count_nonzero(completion.trainable))
