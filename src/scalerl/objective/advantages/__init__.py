"""Advantages: from the scores of a group to the weight of each completion. The family's base."""

from typing import Literal

from scalerl.core.components import Component


class Advantage(Component, family="advantages"):
    """How a completion's score is compared with those of its group, and scaled."""

    scale: Literal["none", "group", "batch"] = "batch"
    """What centred scores are divided by: nothing, the group's std, or the std over all surviving completions of the batch (ddof 0)."""
