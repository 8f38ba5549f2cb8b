"""One mean over all unmasked tokens of the batch (DAPO): long completions weigh more."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scalerl.objective.aggregations import Aggregation


class Token(Aggregation):
    """Weight 1 / (tokens of the batch)."""

    def weights(self, num_tokens: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
        """1 / (tokens of the batch) for every completion that has tokens, group by group, (G,)."""
        total = sum(int(tokens.sum()) for tokens in num_tokens)
        return [(tokens > 0) / max(total, 1) for tokens in num_tokens]
