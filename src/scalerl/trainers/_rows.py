"""From a batch to padded micro-batches: every completion once, in one piece, with a weight that no cut can change.

A row is a prompt and a completion. The last token is predicted and never read, so a row of P + T tokens has P + T - 1
inputs; they are padded on the right, where a causal body needs no mask. The states that predict are gathered before the
head: no logits are made of prompts, inserted tokens and padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from scalerl.accounting.flops import ModelFlops, TrainingFlops, causal_pairs
from scalerl.accounting.meter import Meter
from scalerl.objective import Objective
from scalerl.objective.advantages.critic import Critic
from scalerl.records.cost import Activity
from scalerl.records.rollout import Batch, Completion


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
    versions: NDArray[np.int64]
    """(M,) which weights sampled each trainable token."""
    advantages: Tensor
    """(N, T)"""
    weights: Tensor
    """(N, 1) of each single trainable token."""
    num_inputs: NDArray[np.int64]
    """(N,) inputs of each row without padding."""

    def spread(self, values: Tensor) -> Tensor:
        """(N, T) with the (M,) `values` of the trainable tokens at their places, and 0 elsewhere."""
        return values.new_zeros(self.mask.shape).masked_scatter(self.mask, values)

    def split(self, values: Tensor) -> list[NDArray[np.float64]]:
        """The (M,) `values` of the trainable tokens, row by row."""
        array: NDArray[np.float64] = values.double().cpu().numpy()
        return np.split(array, np.cumsum(self.mask.sum(1).cpu().numpy())[:-1])

    def book(self, meter: Meter, activity: Activity, *, flops: TrainingFlops, detail: str = "") -> None:
        """Count a forward and a backward pass on these rows, and the trainable tokens."""
        useful, padding = self.forward_flops(flops.useful)
        overhead = padding + sum(self.forward_flops(flops.recomputed))
        meter.count(activity, flops=useful, overhead_flops=overhead, tokens=len(self.targets), detail=detail)

    def book_forward(self, meter: Meter, activity: Activity, *, flops: ModelFlops, detail: str) -> None:
        """Count a forward pass on these rows, and the trainable tokens."""
        useful, padding = self.forward_flops(flops)
        meter.count(activity, flops=useful, overhead_flops=padding, tokens=len(self.targets), detail=detail)

    def forward_flops(self, flops: ModelFlops) -> tuple[float, float]:
        """FLOPs of one forward pass: on tokens, and on padding."""
        longest = np.full_like(self.num_inputs, self.input_ids.shape[1])
        num_tokens, num_pairs = int(self.num_inputs.sum()), int(causal_pairs(self.num_inputs).sum())
        num_padding, num_padding_pairs = int(longest.sum()) - num_tokens, int(causal_pairs(longest).sum()) - num_pairs
        useful = flops.forward(num_tokens=num_tokens, num_pairs=num_pairs, num_logits=len(self.targets))
        return useful, flops.forward(num_tokens=num_padding, num_pairs=num_padding_pairs, num_logits=0)


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
    versions = _padded([row.versions for row in rows], num_tokens, fill=0)

    def tensor(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return MicroBatch(
        input_ids=tensor(_padded([row.token_ids[:-1] for row in rows], num_inputs, fill=pad_id)),
        predictors=tensor(predictors),
        targets=tensor(targets[mask]),
        mask=tensor(mask),
        behaviour=tensor(_padded([row.behaviour for row in rows], num_tokens, fill=0.0)),
        versions=versions[mask],
        advantages=tensor(_padded([row.advantages.astype(np.float32) for row in rows], num_tokens, fill=0.0)),
        weights=tensor(np.array([[row.weight] for row in rows], np.float32)),
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
