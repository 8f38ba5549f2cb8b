"""Schedules: when new weights reach the generators. The family's base."""

from typing import ClassVar

from scalerl.core.components import Component


class Schedule(Component, family="schedules"):
    """The order of generating, training and pushing weights; k is the pipeline's."""

    least_k: ClassVar[int] = 0
    """Smallest `pipeline.k` that the schedule can run with."""
