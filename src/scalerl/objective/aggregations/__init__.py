"""Aggregations: how per-token values become one number. The family's base.

The denominator is global: micro-batching, packing and the number of devices cannot change the gradient.
"""

from scalerl.core.components import Component


class Aggregation(Component, family="aggregations"):
    """The weight of each token in the batch's loss."""
