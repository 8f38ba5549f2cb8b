"""Forward passes over rows of a cache, each booked to the last FLOP.

Shapes: N rows or sequences, W new tokens of each, T tokens of a pass, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from scalerl.accounting.meter import Meter
from scalerl.engines._blocks import Block, Ints, more_blocks, passes, whole_blocks
from scalerl.engines._decoder import Decoder
from scalerl.engines._module import ModuleRows
from scalerl.models._policy import Policy
from scalerl.records.cost import Activity


class CachedBody:
    """A policy with a cache of `num_rows` rows; `detail` says in the books what its passes are for."""

    def __init__(self, policy: Policy, *, num_rows: int, meter: Meter, detail: str = "") -> None:
        self.policy = policy
        self._rows = (Decoder if Decoder.runs(policy) else ModuleRows)(policy, num_rows=num_rows)
        self._meter = meter
        self._detail = detail
        self._flops = policy.flops
        self._is_frozen = False

    def freeze(self) -> None:
        """From now on compute with the weights in use, whatever is loaded into the policy: with a copy of them."""
        if not self._is_frozen:
            self.policy, self._is_frozen = self.policy.copied(), True
            self._rows.use(self.policy)

    @torch.inference_mode()
    def forward(self, blocks: Sequence[Block], *, activity: Activity) -> Tensor:
        """(T, H) hidden states of all tokens of `blocks`, one after the other."""
        hidden, pairs_done = zip(*(self._rows.forward(some) for some in passes(blocks)), strict=True)
        num_tokens = sum(block.ids.size for block in blocks)
        num_pairs = sum(block.num_pairs for block in blocks)
        useful = self._flops.forward(num_tokens=num_tokens, num_pairs=num_pairs, num_logits=0)
        overhead = self._flops.forward(num_tokens=0, num_pairs=sum(pairs_done) - num_pairs, num_logits=0)
        self._meter.count(activity, flops=useful, overhead_flops=overhead, detail=self._detail)
        return hidden[0] if len(hidden) == 1 else torch.cat(hidden)

    @torch.inference_mode()
    def whole(self, sequences: Sequence[Sequence[int] | Ints], *, rows: Ints, sequence_of_row: Ints, activity: Activity) -> Tensor:
        """(N, H) hidden states at the last token of N sequences, whose keys are copied to (R,) `rows`.

        A prompt is computed once, however many completions go on from it: `sequence_of_row[i]` is the sequence of `rows[i]`.
        """
        blocks, last = whole_blocks(sequences, rows=rows, sequence_of_row=sequence_of_row)
        return self.forward(blocks, activity=activity)[self._to_device(last)]

    @torch.inference_mode()
    def extend(self, rows: Ints, ids: Ints, *, starts: Ints, num_new: Ints, activity: Activity) -> Tensor:
        """(N, W, H) hidden states of (N, W) `ids` that follow the first (N,) `starts` tokens of N rows.

        Only the first (N,) `num_new` ids of a row are computed; the states of the others are zeros.
        """
        blocks = more_blocks(ids, rows=rows, starts=starts, num_new=num_new)
        computed = self.forward([block for _, block in blocks], activity=activity)
        num, width = ids.shape
        places = np.concatenate([(chosen[:, None] * width + np.arange(block.ids.shape[1])).ravel() for chosen, block in blocks])
        hidden = computed.new_zeros(num * width, computed.shape[-1])
        hidden[self._to_device(places)] = computed
        return hidden.view(num, width, -1)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, *, activity: Activity) -> Tensor:
        """(N, V) fp32 logits of (N, H) hidden states."""
        flops = self._flops.forward(num_tokens=0, num_pairs=0, num_logits=len(hidden))
        self._meter.count(activity, flops=flops, detail=self._detail)
        return self.policy.logits(hidden)

    @torch.inference_mode()
    def move(self, *, source: Ints, target: Ints, length: int) -> None:
        """Copy the first `length` cached tokens of the `source` rows over the `target` rows."""
        self._rows.move(source=source, target=target, length=length)

    def _to_device(self, array: Ints) -> Tensor:
        return torch.from_numpy(array).to(self.policy.device)
