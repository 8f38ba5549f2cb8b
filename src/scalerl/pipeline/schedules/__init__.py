"""Schedules: when new weights reach the generators. The family's base."""

from typing import ClassVar

from scalerl.core.components import Component


class Schedule(Component, family="schedules"):
    """The order of generating, training and pushing weights; k is the pipeline's."""

    least_k: ClassVar[int] = 0
    """Smallest `pipeline.k` that the schedule can run with."""

    def round_batches(self, k: int) -> int | None:
        """Batches that are generated together by frozen weights and trained before the next push; None to push after every step."""
        return None
