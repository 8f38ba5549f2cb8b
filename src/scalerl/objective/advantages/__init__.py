"""Advantages: from the scores of a group to the weight of each completion. The family's base."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from scalerl.core.components import Component

FloatArray = NDArray[np.float64]


class Advantage(Component, family="advantages"):
    """How a completion's score is compared with those of its group, and scaled."""

    least_group: ClassVar[int] = 2
    """Completions that a group must have for a baseline out of the group; 1 for advantages that need no other completion."""

    scale: Literal["none", "group", "batch"] = "batch"
    """What compared scores are divided by: nothing, the group's std, or the std over all surviving completions of the batch.

    Both are the population's (ddof 0). Libraries that take the sample's (ddof 1: verl, TRL, SkyRL, OpenRLHF) have advantages
    smaller by sqrt((n - 1) / n), with n the group or the batch: 3 % for groups of 16.
    """

    def advantages(self, values: Sequence[FloatArray]) -> list[FloatArray]:
        """A_i of every completion, group by group, scaled; NaN where the score is NaN (its grading failed).

        A std of 0 divides nothing: where all scores are equal, those less a baseline stay 0, there is nothing to learn.

        Args:
            values: (G,) scores of each group of the batch that survived the filters; groups may differ in size.
        """
        compared = [self.compared(scores) for scores in values]
        if self.scale == "none":
            return compared
        if self.scale == "group":
            return [_divided(group, by=_std(group)) for group in compared]
        std = _std(np.concatenate([*compared, np.zeros(0)]))
        return [_divided(group, by=std) for group in compared]

    @abstractmethod
    def compared(self, scores: FloatArray) -> FloatArray:
        """The (G,) scores of one group less their baseline, unscaled: NaN where NaN; with a baseline exactly 0 where all are equal."""


def less_mean(scores: FloatArray) -> FloatArray:
    """Scores less the mean of those that are not NaN, (G,); exactly 0 where all are equal."""
    scored = scores[~np.isnan(scores)]
    if not scored.size:
        return scores
    # The mean of three times .1 is not .1: a rest of 1e-17 divided by its own std would be an advantage of 1.
    from_first: FloatArray = scores - scored[0]
    from_first -= np.nanmean(from_first)
    return from_first


def _std(advantages: FloatArray) -> float:
    """The population std (ddof 0) of what is not NaN; exactly 0 where all are equal, and of nothing."""
    scored = advantages[~np.isnan(advantages)]
    return float((scored - scored[0]).std()) if scored.size else 0.0


def _divided(advantages: FloatArray, *, by: float) -> FloatArray:
    return advantages / by if by > 0.0 else advantages
