"""Selectors: which prompt comes next. The family's base."""

from scalerl.core.components import Component


class Selector(Component, family="selectors"):
    """An order over the training prompts, epoch by epoch."""
