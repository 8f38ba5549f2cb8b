"""What one step measured, over its trained tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TokenValues:
    """What is known of M trained tokens."""

    log_probs: Tensor
    """(M,) log pi in nats."""
    behaviour: Tensor
    """(M,) log pi_gen in nats."""
    entropy: Tensor
    """(M,) nats, at the sampling temperature."""
    clipped: Tensor
    """(M,) whether a bound of the loss holds the token back."""


def token_metrics(parts: Sequence[TokenValues]) -> dict[str, float]:
    """Entropy, drift and clipping of all trained tokens; NaN where there are none."""
    log_probs, behaviour, entropy, is_clipped = (
        _joined([getattr(part, name) for part in parts]) for name in ("log_probs", "behaviour", "entropy", "clipped")
    )
    if log_probs.size == 0:
        return dict.fromkeys(("entropy", "ess", "ratio_max", "ratio_p99", "clipped_share", "kl_behaviour"), math.nan)
    drift = log_probs - behaviour
    # The ESS does not depend on the scale of the ratios: the largest is taken as 1, so that none overflows.
    relative = np.exp(drift - drift.max())
    with np.errstate(over="ignore"):
        ratios = np.exp(drift)
    return {
        "entropy": float(entropy.mean()),
        "ess": float(relative.sum() ** 2 / (relative.size * np.square(relative).sum())),
        "ratio_max": float(ratios.max()),
        "ratio_p99": float(np.percentile(ratios, 99, method="higher")),
        "clipped_share": float(is_clipped.mean()),
        "kl_behaviour": float(-drift.mean()),
    }


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The metrics, None for what is not a number."""
    return {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}


def _joined(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *(tensor.double().cpu().numpy() for tensor in tensors)])
