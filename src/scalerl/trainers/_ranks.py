"""The processes that share a batch: each takes some of its rows, and all sum their gradients.

Weights and advantages are those of the whole batch, so a sum over ranks is the gradient of one process; there is nothing
to average. Without torch.distributed there is one rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor
from torch import distributed as dist

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train together."""

    index: int = 0
    number: int = 1

    @staticmethod
    def here() -> Ranks:
        """Those of torch.distributed's default group, if it was started."""
        if dist.is_available() and dist.is_initialized():
            return Ranks(dist.get_rank(), dist.get_world_size())
        return Ranks()

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Every `number`-th of them."""
        return list(items[self.index :: self.number])

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Add up each tensor over the ranks, in place."""
        if self.number > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def gathered(self, items: Sequence[Item]) -> list[Item]:
        """The items of all ranks, those of the first one first."""
        if self.number == 1:
            return list(items)
        everyone: list[list[Item]] = [[] for _ in range(self.number)]
        dist.all_gather_object(everyone, list(items))
        return [item for part in everyone for item in part]


ALONE = Ranks()
"""One process."""
