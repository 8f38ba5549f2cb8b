"""REINFORCE: plain policy gradient without a ratio (Williams 1992).

    J_it = A_i log pi(y_it)

Exact on-policy only: stale tokens are not corrected.
"""

from scalerl.objective.losses import Loss


class Reinforce(Loss):
    """The textbook gradient; it has nothing to set."""
