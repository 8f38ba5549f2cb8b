"""The age rule: which finished groups the trainer may take, and when it has to wait.

The age of a group is the version about to be updated minus the version that sampled its oldest first token; no group is
trained on at an age above k. A step advances the version by one, so a group that started at version v0 must be part of
the step that updates version v0 + k at the latest: its deadline. Waiting for stragglers is needed as soon as the groups
that a step would leave behind could no longer all be trained in time, P of them per step:

    for every d >= v + 1:   |{groups left behind with deadline <= d}| <= P * (d - v)              v: the version about to be updated

(the condition of earliest-deadline-first scheduling). Looking one step ahead is not enough: two stragglers of one
deadline do not fit into a batch of one.
"""

from __future__ import annotations

from collections.abc import Iterable


def fits(deadlines: Iterable[int], *, version: int, batch: int) -> bool:
    """Whether a step that updates `version` may leave groups of these `deadlines` behind, with `batch` groups in each later step."""
    return all(count <= batch * (deadline - version) for count, deadline in enumerate(sorted(deadlines), 1))
