"""The mean over completions of each one's token mean (GRPO): every completion weighs the same."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scalerl.objective.aggregations import Aggregation


class Sample(Aggregation):
    """Weight 1 / (completions of the batch x tokens of the completion)."""

    def weights(self, num_tokens: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
        """1 / (completions with tokens x tokens of this one), group by group, (G,)."""
        num_completions = sum(np.count_nonzero(tokens) for tokens in num_tokens)
        return [(tokens > 0) / np.maximum(num_completions * tokens, 1) for tokens in num_tokens]
