"""The group's mean as baseline: A_i = r_i - mean_j r_j, over the completions of one prompt that have a score."""

from scalerl.objective.advantages import Advantage, FloatArray, less_mean


class Centred(Advantage):
    """The baseline of GRPO and ScaleRL; a completion without a score leaves the mean."""

    def compared(self, scores: FloatArray) -> FloatArray:
        """r_i - mean_j r_j, (G,)."""
        return less_mean(scores)
