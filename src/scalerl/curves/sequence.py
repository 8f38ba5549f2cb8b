"""Numbers that fill a cube evenly, in place of random ones: the same in every call, and better spread."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scalerl.records.curve import FloatArray


@lru_cache(maxsize=16)
def evenly_spread(num_axes: int, number: int) -> FloatArray:
    """(num_axes, number) in 0 .. 1: the additive recurrence of Roberts (2018), whose steps are powers of 1/g, g^(num_axes + 1) = g + 1."""
    g = 2.0
    for _ in range(40):
        g = (1.0 + g) ** (1.0 / (num_axes + 1.0))
    steps = g ** -np.arange(1.0, num_axes + 1.0)
    spread: FloatArray = (0.5 + steps[:, np.newaxis] * np.arange(number)) % 1.0
    spread.flags.writeable = False  # every caller gets the same array
    return spread


def shuffled(number: int) -> NDArray[np.intp]:
    """A fixed order of 0 .. number - 1 that pairs sorted draws with others as if both were independent."""
    return np.argsort(evenly_spread(1, number)[0], kind="stable")
