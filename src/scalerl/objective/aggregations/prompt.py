"""The mean over prompts of each one's token mean (ScaleRL): every prompt weighs the same."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scalerl.objective.aggregations import Aggregation


class Prompt(Aggregation):
    """Weight 1 / (prompts of the batch x tokens of the prompt's completions)."""

    def weights(self, num_tokens: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float64]]:
        """1 / (prompts with tokens x tokens of this one's completions), group by group, (G,)."""
        num_prompts = sum(bool(tokens.any()) for tokens in num_tokens)
        return [(tokens > 0) / max(num_prompts * int(tokens.sum()), 1) for tokens in num_tokens]
