"""One mean over all unmasked tokens of the batch (DAPO): long completions weigh more."""

from scalerl.objective.aggregations import Aggregation


class Token(Aggregation):
    """Weight 1 / (tokens of the batch)."""
