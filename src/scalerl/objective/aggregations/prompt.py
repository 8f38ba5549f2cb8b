"""The mean over prompts of each one's token mean (ScaleRL): every prompt weighs the same."""

from scalerl.objective.aggregations import Aggregation


class Prompt(Aggregation):
    """Weight 1 / (prompts of the batch x tokens of the prompt's completions)."""
