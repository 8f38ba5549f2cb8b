"""Losses: what one token contributes, before any sum. The family's base."""

from scalerl.core.components import Component


class Loss(Component, family="losses"):
    """A per-token (or per-sequence) policy objective; aggregation sums it with a global denominator."""
