"""The mean of the others as baseline: A_i = r_i - mean_{j != i} r_j (RLOO, arXiv 2402.14740), unbiased for any group of 2 and more."""

from scalerl.objective.advantages import Advantage


class LeaveOneOut(Advantage):
    """`centred` times G / (G - 1): it differs where groups differ in size."""
