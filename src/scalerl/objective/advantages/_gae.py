"""Generalized advantage estimation over the tokens of one completion (arXiv 1506.02438, eq. 11-16).

    delta_t = reward_t + discount V_t+1 - V_t           A_t = sum_l (discount decay)^l delta_t+l

The reward comes after the last own token, beyond which there is no state: its value is 0.
"""

import numpy as np

from scalerl.objective.advantages import FloatArray


def generalized_advantages(values: FloatArray, reward: float, *, discount: float, decay: float) -> tuple[FloatArray, FloatArray]:
    """Advantages A_t and returns A_t + V_t of every own token, both (T,).

    decay 1 compares the discounted reward with V_t (no bias of the critic, most variance); decay 0 one value with the next.

    Args:
        values: (T,) V_t of the state before each own token; tokens that are not the policy's have been left out.
        reward: score of the completion, given after its last own token.
        discount: gamma in [0, 1]; 1 where a late answer is worth as much as an early one.
        decay: lambda in [0, 1].
    """
    if not values.size:
        return values, values
    advantages = discount * np.append(values[1:], 0.0) - values
    advantages[-1] += reward
    # Sums of 1, 2, 4 ... terms: log2 T passes instead of a loop over T tokens, and no power of a small number to divide by.
    reach = 1
    while reach < values.size:
        advantages[:-reach] += (discount * decay) ** reach * advantages[reach:]
        reach *= 2
    return advantages, advantages + values
