"""Filters: which finished groups a batch trains on, and which of their completions. The family's base."""

from typing import ClassVar

from scalerl.core.components import Component
from scalerl.records.rollout import Completion, Group


class Filter(Component, family="filters"):
    """A rule that takes whole groups, or single completions, out of the loss and its denominators."""

    least_group: ClassVar[int] = 1
    """Completions that a group must have for the rule to leave any."""

    refill: bool = False
    """Whether a filtered group gives its slot back and another one is generated."""

    def takes_out(self, group: Group, *, version: int) -> bool:
        """Whether a batch that updates `version` does without `group`, whose completions are graded."""
        return False

    def masks(self, completion: Completion) -> bool:
        """Whether nothing of `completion` is trained on although its score stays in its group's baseline."""
        return False
