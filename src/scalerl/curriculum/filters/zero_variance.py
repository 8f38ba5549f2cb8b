"""Zero variance: a group whose completions all got one reward carries no gradient and leaves the batch.

Without `refill` the batch shrinks to its effective size (arXiv 2510.13786); with it another group is generated
(dynamic sampling, DAPO, arXiv 2503.14476).
"""

from scalerl.curriculum.filters import Filter


class ZeroVariance(Filter):
    """Groups of equal rewards leave the loss AND the denominators."""

    refill: bool = False
    """Whether a filtered group gives its slot back and another one is generated."""
