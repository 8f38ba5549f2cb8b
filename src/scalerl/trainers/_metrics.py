"""What one step measured, over its trained tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from scalerl.objective.ratios import LARGEST_LOG_RATIO


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
    versions: NDArray[np.int64]
    """(M,) which weights sampled it."""


_NAMES = (
    *("entropy", "ess", "ratio_p01", "ratio_p50", "ratio_p99", "ratio_max", "clipped_share", "cut_share"),
    *("kl_behaviour", "kl_mismatch", "kl_stale", "stale_share"),
)


def token_metrics(parts: Sequence[TokenValues], *, version: int) -> dict[str, float]:
    """Entropy, drift and clipping of all trained tokens, in training of `version`; NaN where there are none.

    kl_behaviour estimates KL(pi_gen || pi) in nats a token. Tokens that `version` itself sampled differ by numerics alone:
    their share of it is kl_mismatch; that of older ones, kl_stale, holds the same and what the updates changed. Where all are
    older, kl_mismatch is not known: the probe of each push tells it. clipped_share is what a bound of the loss holds back,
    CISPO's cap included; cut_share lies beyond exp(20).
    """
    log_probs, behaviour, entropy, is_clipped = (
        _joined([getattr(part, name) for part in parts]) for name in ("log_probs", "behaviour", "entropy", "clipped")
    )
    if log_probs.size == 0:
        return dict.fromkeys(_NAMES, math.nan)
    is_stale = np.concatenate([part.versions for part in parts]) < version
    drift = log_probs - behaviour
    # The ESS does not depend on the scale of the ratios: the largest is taken as 1, so that none overflows.
    relative = np.exp(drift - drift.max())
    with np.errstate(over="ignore"):
        ratios = np.exp(drift)
    low, median = np.percentile(ratios, [1, 50], method="lower")
    return {
        "entropy": float(entropy.mean()),
        "ess": float(relative.sum() ** 2 / (relative.size * np.square(relative).sum())),
        "ratio_p01": float(low),
        "ratio_p50": float(median),
        "ratio_p99": float(np.percentile(ratios, 99, method="higher")),
        "ratio_max": float(ratios.max()),
        "clipped_share": float(is_clipped.mean()),
        "cut_share": float(np.mean(drift > LARGEST_LOG_RATIO)),
        "kl_behaviour": float(-drift.mean()),
        "kl_mismatch": _mean(-drift[~is_stale]),
        "kl_stale": _mean(-drift[is_stale]),
        "stale_share": float(is_stale.mean()),
    }


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The metrics, None for what is not a number."""
    return {name: float(value) if math.isfinite(value) else None for name, value in metrics.items()}


def _joined(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros(0), *(tensor.double().numpy() for tensor in tensors)])


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else math.nan
