"""The losses again, written token by token from the equations in NumPy's float64, and a gradient that knows no calculus."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from scalerl.objective.losses import Loss
from scalerl.objective.losses.cispo import Cispo
from scalerl.objective.losses.dapo import Dapo
from scalerl.objective.losses.grpo import Grpo
from scalerl.objective.losses.gspo import Gspo
from scalerl.objective.losses.reinforce import Reinforce

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
OBJECTIVES: dict[Loss, Callable[..., float]] = {}
"""J of one token, given (log pi, log pi_gen, A, mean log ratio of its completion, log pi where the gradient is taken)."""


def ppo(ratio: float, advantage: float, low: float, high: float) -> float:
    """The clipped objective by cases instead of by a minimum."""
    return advantage * (min(ratio, 1.0 + high) if advantage >= 0.0 else max(ratio, 1.0 - low))


OBJECTIVES[Cispo(cap=1.3)] = lambda new, old, advantage, mean, at: min(math.exp(at - old), 1.3) * advantage * new
OBJECTIVES[Dapo(clip_low=0.2, clip_high=0.28)] = lambda new, old, advantage, mean, at: ppo(math.exp(new - old), advantage, 0.2, 0.28)
OBJECTIVES[Grpo(clip=0.1)] = lambda new, old, advantage, mean, at: ppo(math.exp(new - old), advantage, 0.1, 0.1)
OBJECTIVES[Gspo(clip_low=0.05, clip_high=0.08)] = lambda new, old, advantage, mean, at: ppo(math.exp(mean), advantage, 0.05, 0.08)
OBJECTIVES[Reinforce()] = lambda new, old, advantage, mean, at: advantage * new


def objective(loss: Loss, new: Array, old: Array, advantages: Array, mask: Mask, *, at: Array) -> Array:
    """J of every token, (N, T), 0 where masked; `at` is where stopped gradients stay while `new` moves."""
    result = np.zeros(mask.shape)
    for row in range(mask.shape[0]):
        own = np.flatnonzero(mask[row])
        mean = sum(new[row, t] - old[row, t] for t in own) / max(own.size, 1)
        for t in own:
            result[row, t] = OBJECTIVES[loss](new[row, t], old[row, t], advantages[row, 0], mean, at[row, t])
    return result


def central_differences(function: Callable[[Array], float], at: Array, *, step: float = 1e-6) -> Array:
    """The gradient of `function`, (N, T), good to about 1e-9 away from kinks."""
    gradient = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        gradient[place] = (function(at + moved) - function(at - moved)) / (2.0 * step)
    return gradient


def value_and_gradient(
    loss: Loss, new: Array, old: Array, advantages: Array, mask: Mask, *, weights: Array, dtype: torch.dtype = torch.float64
) -> tuple[Array, Array]:
    """The loss at work: J (N, T), and d sum(`weights` J) / d `new`, (N, T)."""
    log_probs = torch.tensor(new, dtype=dtype, requires_grad=True)
    constants = (torch.tensor(old, dtype=dtype), torch.tensor(advantages, dtype=dtype), torch.tensor(mask))
    values = loss.objective(log_probs, *constants)
    (gradient,) = torch.autograd.grad((torch.tensor(weights, dtype=dtype) * values).sum(), log_probs)
    return values.detach().numpy(), gradient.numpy()
