"""Zero variance: a group whose completions all got one reward carries no gradient and leaves the batch.

Without `refill` the batch shrinks to its effective size (arXiv 2510.13786); with it another group is generated
(dynamic sampling, DAPO, arXiv 2503.14476).
"""

from typing import ClassVar

from scalerl.curriculum.filters import Filter
from scalerl.records.rollout import Group


class ZeroVariance(Filter):
    """Groups of equal rewards leave the loss AND the denominators."""

    least_group: ClassVar[int] = 2

    def takes_out(self, group: Group, *, version: int) -> bool:  # noqa: ARG002
        """Whether fewer than two different rewards were given; a completion whose grading failed has none."""
        values = {completion.score.value for completion in group.completions if completion.score is not None}
        return len(values - {None}) < 2
