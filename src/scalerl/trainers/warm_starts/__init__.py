"""Warm starts: how a base that can already score sometimes is made before RL. The family's base."""

from scalerl.core.components import Component


class WarmStart(Component, family="warm_starts"):
    """Pre-training before the run, cached by its settings and booked as such."""
