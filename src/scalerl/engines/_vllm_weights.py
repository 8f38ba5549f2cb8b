"""Weights in memory that two processes map: one writes new ones there, the other reads them when it is told to.

A push copies them once, from where the runtime has received them; and whoever starts vLLM again finds the latest ones there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from mmap import mmap
from pathlib import Path

import torch
from torch import Tensor

from scalerl.models._policy import Policy

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where one tensor lies in a file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    """Bytes before it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights; it can be pickled, and mapped by whoever gets it."""

    path: Path
    num_bytes: int
    places: Mapping[str, Place]
    """By name in the Hugging Face model."""

    def mapped(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by name, where it lies: nothing is copied."""
        with self.path.open("r+b") as file:
            memory = mmap(file.fileno(), self.num_bytes)
        for name, place in self.places.items():
            flat = torch.frombuffer(memory, dtype=place.dtype, count=prod(place.shape), offset=place.offset)
            yield name, flat.view(place.shape)


def share(policy: Policy, *, descriptor: int) -> Weights:
    """Move the weights of `policy` into the open, empty file `descriptor`, where its later `load_tensors` write too."""
    places, end = {}, 0
    for name, tensor in policy.tensors().items():
        places[name] = Place(tensor.dtype, tuple(tensor.shape), end)
        end += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    os.truncate(descriptor, end)
    weights = Weights(Path(f"/proc/{os.getpid()}/fd/{descriptor}"), end, places)
    parameters = dict(policy.module.named_parameters())
    for name, tensor in weights.mapped():
        tensor.copy_(parameters[name].detach())
        parameters[name].data = tensor
    return weights
