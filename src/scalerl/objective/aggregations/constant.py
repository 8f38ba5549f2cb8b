"""The sum of each completion's tokens over a constant length (Dr. GRPO, arXiv 2503.20783): every token weighs the same, always.

A completion's own length is in no denominator, so that neither long nor short answers are favoured.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from scalerl.objective.aggregations import Aggregation


class Constant(Aggregation):
    """Weight 1 / (completions of the batch x `tokens`): no mean, the weights sum to mean length / `tokens`."""

    tokens: int = Field(gt=0, examples=[14336])
    """Length that every completion is divided by: usually the largest that one can have, as in TRL. It scales the gradient."""

    def weights(self, num_tokens: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
        """1 / (completions with tokens x `tokens`), group by group, (G,)."""
        num_completions = sum(np.count_nonzero(tokens) for tokens in num_tokens)
        return [(tokens > 0) / max(num_completions * self.tokens, 1) for tokens in num_tokens]
