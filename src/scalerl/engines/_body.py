"""Forward passes of the unchanged Hugging Face body over rows of a cache, each booked to the last FLOP.

Shapes: N rows or sequences, W new tokens of each, K longest context, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scalerl.accounting.flops import causal_pairs
from scalerl.accounting.meter import Meter
from scalerl.engines._cache import RowCache
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity

Ints = NDArray[np.int64]


class CachedBody:
    """A policy with a cache of `num_rows` rows; `detail` says in the books what its passes are for."""

    def __init__(self, policy: Policy, *, num_rows: int, meter: Meter, detail: str = "") -> None:
        self.policy = policy
        self._cache = RowCache(num_rows, device=policy.device)
        self._meter = meter
        self._detail = detail
        self._flops = policy.flops

    def whole(self, sequences: Sequence[Sequence[int] | Ints], *, rows: Ints, sequence_of_row: Ints, activity: Activity) -> Tensor:
        """(N, H) hidden states at the last token of N sequences, whose keys are copied to (R,) `rows`.

        A prompt is computed once, however many completions go on from it: `sequence_of_row[i]` is the sequence of `rows[i]`.
        """
        lengths = np.array([len(sequence) for sequence in sequences])
        num, width = len(sequences), int(lengths.max())
        ids = np.full((num, width), self.policy.pad_id)
        ids[np.arange(width) < lengths[:, None]] = np.concatenate(sequences)
        self._cache.prefill(self._to_device(rows), sequences=self._to_device(sequence_of_row), length=width)
        hidden = self._forward(self._to_device(ids), torch.arange(width, device=self.policy.device)[None], context=width)
        self._book(activity, num_tokens=int(lengths.sum()), num_pairs=int(causal_pairs(lengths).sum()), shape=(num, width, width))
        return hidden[torch.arange(num, device=hidden.device), self._to_device(lengths - 1)]

    def extend(self, rows: slice | Ints, ids: Ints, *, starts: Ints, num_new: Ints, activity: Activity) -> Tensor:
        """(N, W, H) hidden states of (N, W) `ids` that follow the first (N,) `starts` tokens of N rows.

        Only the first (N,) `num_new` ids of a row count; what comes after them fills up and must be overwritten before it is
        attended to.
        """
        num, width = ids.shape
        ends = starts + num_new
        context = int(starts.max()) + width
        index = torch.arange(num, device=self.policy.device) if isinstance(rows, slice) else self._to_device(rows)
        positions = self._to_device(starts[:, None] + np.arange(width))
        self._cache.extend(rows if isinstance(rows, slice) else index, row_index=index[:, None], positions=positions, length=context)
        hidden = self._forward(self._to_device(ids), positions, context=context)
        num_pairs = int(causal_pairs(ends, start=starts).sum())
        self._book(activity, num_tokens=int(num_new.sum()), num_pairs=num_pairs, shape=(num, width, context))
        return hidden

    def logits(self, hidden: Tensor, *, activity: Activity) -> Tensor:
        """(N, V) fp32 logits of (N, H) hidden states."""
        flops = self._flops.forward(num_tokens=0, num_pairs=0, num_logits=len(hidden))
        self._meter.count(activity, flops=flops, detail=self._detail)
        return self.policy.logits(hidden)

    def move(self, *, source: Ints, target: Ints, length: int) -> None:
        """Copy the first `length` cached tokens of the `source` rows over the `target` rows."""
        self._cache.move(self._to_device(source), self._to_device(target), length=length)

    def _forward(self, ids: Tensor, positions: Tensor, *, context: int) -> Tensor:
        """(N, W, H) hidden states; every token attends to the positions up to its own, which are cached or computed now."""
        keys = torch.arange(context, device=ids.device)
        # Added to the scores: the one form of mask that all attention implementations of transformers take.
        mask = torch.zeros(positions.shape[0], 1, positions.shape[1], context, dtype=self.policy.module.dtype, device=ids.device)
        mask.masked_fill_(keys > positions[:, None, :, None], torch.finfo(mask.dtype).min)
        return self.policy.hidden(ids, attention_mask=mask, position_ids=positions, cache=self._cache, use_cache=True)

    def _book(self, activity: Activity, *, num_tokens: int, num_pairs: int, shape: tuple[int, int, int]) -> None:
        """Book a pass that computed (N, W, K) `shape` for the sake of so many tokens and (token, key) pairs."""
        num, width, context = shape
        useful = self._flops.forward(num_tokens=num_tokens, num_pairs=num_pairs, num_logits=0)
        done = self._flops.forward(num_tokens=num * width, num_pairs=num * width * context, num_logits=0)
        self._meter.count(activity, flops=useful, overhead_flops=done - useful, detail=self._detail)

    def _to_device(self, array: Ints) -> Tensor:
        return torch.from_numpy(array).to(self.policy.device)
