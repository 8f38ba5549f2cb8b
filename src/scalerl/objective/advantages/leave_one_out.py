"""The mean of the others as baseline: A_i = r_i - mean_{j != i} r_j (RLOO, arXiv 2402.14740), unbiased for any group of 2 and more."""

import numpy as np

from scalerl.objective.advantages import Advantage, FloatArray, less_mean


class LeaveOneOut(Advantage):
    """`centred` times G / (G - 1): it differs where groups differ in size."""

    def compared(self, scores: FloatArray) -> FloatArray:
        """G / (G - 1) (r_i - mean_j r_j), (G,), with G the scores that there are; 0 for one without others."""
        num_scored = int(np.count_nonzero(~np.isnan(scores)))
        return num_scored / max(num_scored - 1, 1) * less_mean(scores)
