"""Importance ratios that cannot overflow, and the clipped objective over them: what the losses share.

Tensor methods only, no torch import. Everything is masked BEFORE the exponential: a product with the mask afterwards
would turn inf or NaN at a masked place into NaN, in the value or on the way back. And everything is in fp32 at least:
near a log-probability of -8 neighbouring bf16 numbers are .06 apart, more than a usual ratio's distance from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_LOG_RATIO = 20.0
"""Log-ratios are cut here, as verl does: exp(88.8) is infinite in fp32. A token beyond it counts as clipped and has no gradient."""

Level = Literal["token", "sequence", "geometric"]
"""Over what a ratio is taken: rho_it of each token, their product over the completion, or its geometric mean over the tokens."""


def own_tokens(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Each tensor in fp32 or wider, broadcast to (N, T), with 0 where `mask` is False.

    Neither values nor gradients pass there, NaN included.
    """
    return tuple((tensor.float() if tensor.dtype.itemsize < 4 else tensor).where(mask, 0.0) for tensor in tensors)


def log_ratios(log_probs: Tensor, behaviour: Tensor, mask: Tensor, *, level: Level = "token") -> Tensor:
    """log rho_it, (N, T); or one number per completion, (N, 1): their sum or mean over its own tokens, 0 if it has none.

    The sum comes before the exponential: log-ratios of +100 and -100 are a ratio of 1, not inf times 0.
    """
    log_probs, behaviour = own_tokens(mask, log_probs, behaviour)
    of_tokens = log_probs - behaviour
    if level == "token":
        return of_tokens
    of_completion = of_tokens.sum(-1, keepdim=True)
    return of_completion if level == "sequence" else of_completion / mask.sum(-1, keepdim=True).clamp(min=1)


def exp_ratio(log_ratio: Tensor) -> Tensor:
    """rho = exp(`log_ratio`), finite in fp32, of the same shape; constant beyond `LARGEST_LOG_RATIO`."""
    return log_ratio.clamp(max=LARGEST_LOG_RATIO).exp()


def clipped_objective(log_ratio: Tensor, advantages: Tensor, *, low: float, high: float, dual: float | None = None) -> Tensor:
    """min(rho A, clip(rho, 1 - low, 1 + high) A), of the broadcast shape (PPO, arXiv 1707.06347, eq. 7).

    With `dual`, an absolute ratio, it is at least dual A where A < 0 (arXiv 1912.09729, eq. 5).
    """
    ratio = exp_ratio(log_ratio)
    values = (ratio * advantages).minimum(ratio.clamp(1.0 - low, 1.0 + high) * advantages)
    return values if dual is None else values.maximum(dual * advantages).where(advantages < 0.0, values)


def is_clipped(log_ratio: Tensor, advantages: Tensor, *, low: float, high: float, dual: float | None = None) -> Tensor:
    """Where `clipped_objective` is constant although the advantage is not 0, as booleans of the broadcast shape.

    Without `dual` the minimum leaves a ratio unbounded above where A < 0; there only `LARGEST_LOG_RATIO` holds it.
    """
    ratio = exp_ratio(log_ratio)
    risen = (advantages > 0.0) & (ratio > 1.0 + high)
    fallen = (advantages < 0.0) & (ratio < 1.0 - low)
    too_bad = log_ratio > LARGEST_LOG_RATIO if dual is None else ratio > dual
    return risen | fallen | (advantages < 0.0) & too_bad
