"""A critic: the baseline of each token is a learned value of the state before it (PPO, arXiv 1707.06347).

    A_t = sum_l (discount decay)^l delta_t+l        delta_t = reward_t + discount V_t+1 - V_t        (arXiv 1506.02438)
    critic: minimise  mean_t 1/2 max((V_t - R_t)^2, (clip(V_t, V_old_t +- value_clip) - R_t)^2)       R_t = A_t + V_old_t

The critic is a copy of the policy's body with a scalar head, trained on the same batches before the policy is. A group is
no longer needed, and a group of equal rewards still carries gradient: do not filter by zero variance. It doubles the
memory of training, and what it computes is booked as `critic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from scalerl.objective.advantages import Advantage, FloatArray
from scalerl.objective.advantages._gae import generalized_advantages


class Critic(Advantage):
    """Generalized advantages over a value network instead of a mean over the group."""

    least_group: ClassVar[int] = 1

    scale: Literal["none", "batch"] = "batch"
    """What advantages are divided by: nothing, or their std over all own tokens of the batch (ddof 0). Libraries that "whiten"
    also subtract their mean, which is a second baseline."""
    discount: float = Field(default=1.0, ge=0.0, le=1.0)
    """gamma: 1 where a late answer is worth as much as an early one."""
    decay: float = Field(default=1.0, ge=0.0, le=1.0)
    """lambda: 1 trusts the reward alone, less trusts the critic; 1 was the stable one for reasoning (arXiv 2503.24290)."""
    value_clip: float | None = Field(default=0.2, gt=0.0)
    """How far a value may move from the one before the batch, in units of the reward; it can only bind from the second pass on."""
    passes: int = Field(default=1, gt=0)
    """Optimizer steps of the critic per batch, each over all of it."""
    learning_rate_factor: float = Field(default=5.0, gt=0.0)
    """The critic's learning rate over the policy's: PPO's usual pairs are 1e-6 with 5e-6 to 1e-5."""

    def compared(self, scores: FloatArray) -> FloatArray:
        """The scores as they are: the values that are subtracted belong to tokens."""
        return scores

    def of_tokens(self, values: FloatArray, reward: float) -> tuple[FloatArray, FloatArray]:
        """Unscaled advantages and returns of one completion's own tokens, (T,) each, for `values` (T,) of the states before them."""
        return generalized_advantages(values, reward, discount=self.discount, decay=self.decay)

    def divisor(self, advantages: Sequence[FloatArray]) -> float:
        """What the advantages of a batch's completions are divided by: their std over all own tokens; 1 if that is 0 or not asked for."""
        std = float(np.concatenate([*advantages, np.zeros(0)]).std()) if any(part.size for part in advantages) else 0.0
        return std if self.scale == "batch" and std > 0.0 else 1.0
