"""Tensors as bytes, and bytes as tensors: what a weight push carries, in the order of the model's parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from scalerl.runtimes._weights import Part


def num_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of all tensors together."""
    return sum(tensor.nbytes for tensor in tensors.values())


def pack(tensors: Mapping[str, Tensor]) -> list[Part]:
    """The bytes of each tensor; without a copy where it lies in this process's memory in one piece."""
    return [tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data for tensor in tensors.values()]


def unpack(content: memoryview, *, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors named, shaped and typed as those of `like`: views of `content`, good for as long as it is."""
    tensors, offset = {}, 0
    for name, model in like.items():
        count = model.numel()
        flat = torch.frombuffer(content, dtype=model.dtype, count=count, offset=offset) if count else torch.empty(0, dtype=model.dtype)
        tensors[name] = flat.reshape(model.shape)
        offset += model.nbytes
    return tensors
