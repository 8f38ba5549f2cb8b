"""No baseline: A_i = r_i. It works for groups of one; with rewards of 0 and 1 nothing is learnt from what fails."""

from typing import ClassVar, Literal

from scalerl.objective.advantages import Advantage, FloatArray


class Raw(Advantage):
    """REINFORCE as first written: no other completion is needed, and the variance of the gradient is that of the reward itself."""

    least_group: ClassVar[int] = 1

    scale: Literal["none", "batch"] = "none"
    """What scores are divided by: nothing, or their std over all surviving completions of the batch (ddof 0), uncentred."""

    def compared(self, scores: FloatArray) -> FloatArray:
        """r_i, (G,), as they are."""
        return scores
