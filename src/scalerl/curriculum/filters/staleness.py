"""Staleness: groups that are older than some versions leave the batch.

`pipeline.k` bounds age for all by waiting or dropping; this filter is for trying a smaller bound on what is trained on
while generation goes on as far ahead.
"""

from typing import Literal

from pydantic import Field

from scalerl.curriculum.filters import Filter
from scalerl.records.rollout import Group


class Staleness(Filter):
    """Whole groups leave, by their oldest first token: dropping single completions would favour short ones."""

    refill: Literal[False] = False
    """A group grows stale while it waits: to have others in its place, set pipeline.k and pipeline.on_stale = "drop"."""
    most_versions: int = Field(ge=0, examples=[4])
    """Largest age that is trained on."""

    def takes_out(self, group: Group, *, version: int) -> bool:
        """Whether the group is older."""
        return group.age(version) > self.most_versions
