"""Filters: which finished groups a batch trains on. The family's base."""

from abc import abstractmethod

from scalerl.core.components import Component
from scalerl.records.rollout import Group


class Filter(Component, family="filters"):
    """A rule that takes whole groups out of the loss and its denominators."""

    refill: bool = False
    """Whether a filtered group gives its slot back and another one is generated."""

    @abstractmethod
    def takes_out(self, group: Group) -> bool:
        """Whether the batch does without `group`, whose completions are graded."""
