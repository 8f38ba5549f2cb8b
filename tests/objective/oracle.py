"""The losses and terms again, written token by token from the equations in NumPy's float64, and a gradient that knows no calculus."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from scalerl.objective.losses import Loss
from scalerl.objective.losses.cispo import Cispo
from scalerl.objective.losses.dapo import Dapo
from scalerl.objective.losses.dr_grpo import DrGrpo
from scalerl.objective.losses.grpo import Grpo
from scalerl.objective.losses.gspo import Gspo
from scalerl.objective.losses.masked import Masked
from scalerl.objective.losses.ppo import Ppo
from scalerl.objective.losses.reinforce import Reinforce
from scalerl.objective.losses.truncated import Truncated
from scalerl.objective.terms import Term
from scalerl.objective.terms.entropy import Entropy
from scalerl.objective.terms.kl import Kl

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Token:
    """What J of one token is a function of."""

    new: float
    """log pi, where the gradient is taken."""
    old: float
    """log pi_gen."""
    advantage: float
    at: float
    """log pi, where no gradient flows: `new` moves, this stays."""
    own: tuple[float, ...]
    """Log-ratios of all own tokens of the completion, where no gradient flows."""


def ppo(ratio: float, advantage: float, low: float, high: float) -> float:
    """The clipped objective by cases instead of by a minimum."""
    return advantage * (min(ratio, 1.0 + high) if advantage >= 0.0 else max(ratio, 1.0 - low))


def clip(low: float, high: float) -> Callable[[Token], float]:
    return lambda token: ppo(math.exp(token.new - token.old), token.advantage, low, high)


def dual_clip(low: float, high: float, largest: float) -> Callable[[Token], float]:
    """A token with A < 0 counts at `largest` times its advantage at most."""

    def objective(token: Token) -> float:
        ratio = math.exp(token.new - token.old)
        return ppo(ratio if token.advantage >= 0.0 else min(ratio, largest), token.advantage, low, high)

    return objective


def gspo(low: float, high: float) -> Callable[[Token], float]:
    return lambda token: ppo(math.exp(fmean(token.own)) * math.exp(token.new - token.at), token.advantage, low, high)


def weighted(weight: Callable[[Token], float]) -> Callable[[Token], float]:
    return lambda token: weight(token) * token.advantage * token.new


def inside(ratio: float, low: float, high: float) -> float:
    return ratio if low <= ratio <= high else 0.0


OBJECTIVES: dict[Loss, Callable[[Token], float]] = {
    Cispo(cap=1.3): weighted(lambda token: min(math.exp(token.at - token.old), 1.3)),
    Dapo(clip_low=0.2, clip_high=0.28): clip(0.2, 0.28),
    Dapo(clip_low=0.1, clip_high=0.15, dual_clip=1.3): dual_clip(0.1, 0.15, 1.3),
    DrGrpo(clip=0.15): clip(0.15, 0.15),
    Grpo(clip=0.1): clip(0.1, 0.1),
    Gspo(clip_low=0.05, clip_high=0.08): gspo(0.05, 0.08),
    Masked(low=0.8, high=1.2): weighted(lambda token: inside(math.exp(token.at - token.old), 0.8, 1.2)),
    Masked(level="sequence", low=0.0, high=1.1): weighted(lambda token: inside(math.exp(sum(token.own)), 0.0, 1.1)),
    Masked(level="geometric", low=0.9, high=1.1): weighted(lambda token: inside(math.exp(fmean(token.own)), 0.9, 1.1)),
    Ppo(clip=0.12): clip(0.12, 0.12),
    Ppo(clip=0.05, dual_clip=1.2): dual_clip(0.05, 0.05, 1.2),
    Reinforce(): weighted(lambda token: 1.0),
    Truncated(cap=1.2): weighted(lambda token: min(math.exp(token.at - token.old), 1.2)),
    Truncated(level="sequence", cap=1.4): weighted(lambda token: min(math.prod(map(math.exp, token.own)), 1.4)),
}
"""J of one token for settings with which the drawn ratios lie on both sides of every bound."""

TERMS: dict[Term, Callable[[float, float, float], float]] = {
    Entropy(coefficient=0.3): lambda new, reference, entropy: 0.3 * entropy,
    Kl(coefficient=0.2, estimator="k1"): lambda new, reference, entropy: -0.2 * (new - reference),
    Kl(coefficient=0.2, estimator="k2"): lambda new, reference, entropy: -0.1 * (new - reference) ** 2,
    Kl(coefficient=0.2, estimator="k3"): lambda new, reference, entropy: -0.2 * (math.exp(reference - new) - reference + new - 1.0),
}
"""What is added to J of one token, given (log pi, log pi_ref, entropy)."""


def label(component: Loss | Term) -> str:
    """A test's id: the component with its settings."""
    return "-".join(str(value) for value in component.selection().values())


def objective(loss: Loss, new: Array, old: Array, advantages: Array, mask: Mask, *, at: Array) -> Array:
    """J of every token, (N, T), 0 where masked; `at` is where stopped gradients stay while `new` moves."""
    result = np.zeros(mask.shape)
    advantages = np.broadcast_to(advantages, mask.shape)
    for row in range(mask.shape[0]):
        columns = np.flatnonzero(mask[row])
        own = tuple(at[row, t] - old[row, t] for t in columns)
        for t in columns:
            result[row, t] = OBJECTIVES[loss](Token(new[row, t], old[row, t], advantages[row, t], at[row, t], own))
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
