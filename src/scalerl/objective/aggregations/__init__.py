"""Aggregations: how per-token values become one number. The family's base.

The denominator is global: micro-batching, packing and the number of devices cannot change the gradient.
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scalerl.core.components import Component


class Aggregation(Component, family="aggregations"):
    """The weight of each token in the batch's loss."""

    @abstractmethod
    def weights(self, num_tokens: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
        """The weight of each single token of every completion, group by group; those of a mean sum to 1 over all tokens.

        Args:
            num_tokens: (G,) unmasked tokens of each completion of each group; 0 for those that leave the loss, whose
                weight is 0. A batch without tokens has weights of 0 only.
        """
