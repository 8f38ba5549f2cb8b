"""The mean over completions of each one's token mean (GRPO): every completion weighs the same."""

from scalerl.objective.aggregations import Aggregation


class Sample(Aggregation):
    """Weight 1 / (completions of the batch x tokens of the completion)."""
