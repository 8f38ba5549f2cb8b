"""Filters: which finished groups a batch trains on. The family's base."""

from scalerl.core.components import Component


class Filter(Component, family="filters"):
    """A rule that takes whole groups out of the loss and its denominators."""
