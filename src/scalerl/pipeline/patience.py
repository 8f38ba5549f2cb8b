"""Patience: groups in a row that gave nothing to train on, and what is said when there were too many."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean

from scalerl.records.rollout import Group


@dataclass(slots=True)
class Fruitless:
    """Groups in a row that gave nothing to train on."""

    num_filtered: int = 0
    num_failed: int = 0
    values: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))
    """Their rewards, the latest."""

    @property
    def num_groups(self) -> int:
        """All of them."""
        return self.num_filtered + self.num_failed

    def add(self, group: Group) -> None:
        """Count one more, which is graded."""
        if group.has_failed:
            self.num_failed += 1
        else:
            self.num_filtered += 1
            scores = (completion.score for completion in group.completions)
            self.values.extend(score.value for score in scores if score is not None and score.value is not None)

    def sentence(self) -> str:
        """What there was."""
        told = f"the last {self.num_groups} groups gave nothing to train on: 0 kept, {self.num_filtered} filtered"
        told += f", {self.num_failed} not graded" if self.num_failed else ""
        return told + (f", mean reward {fmean(self.values):.3f}" if self.values else "")

    def remedy(self) -> str:
        """What to do about it."""
        if self.num_failed > self.num_filtered:
            return "see why the grader fails, then resume the run"
        return "choose easier or harder prompts, a larger batch.group, or raise pipeline.patience"
