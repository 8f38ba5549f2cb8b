"""Passes of an evaluation: mean@n, unbiased pass@k and maj@k, each with an interval over prompts.

    pass@k = mean over prompts of 1 - C(n - c, k) / C(n, k)          (Chen et al. 2021, arXiv 2107.03374, equation 1)
    maj@k  = mean over prompts of the share of votes among k completions whose most frequent answer passes

n completions of a prompt were graded and c of them passed. Completions of one prompt are no independent evidence about the
task, so intervals count prompts: Wilson's interval at the number of trials that a binomial of the same variance would have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Vote:
    """A graded completion as majority voting sees it."""

    answer: str | None
    """None where it gives none: it abstains."""
    passed: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean over prompts with its interval."""

    value: float
    low: float
    high: float
    num_prompts: int
    """Prompts that the mean is over: those with enough graded completions."""

    def to_dict(self) -> dict[str, float | int]:
        """The measurement in plain numbers."""
        return {"value": self.value, "low": self.low, "high": self.high, "num_prompts": self.num_prompts}


def pass_at_k(num_passed: IntArray, num_graded: IntArray, *, k: int) -> FloatArray:
    """(P',) unbiased estimate of the probability that one of k completions passes, for the prompts with k graded ones or more.

    Args:
        num_passed: (P,) completions of each prompt that passed.
        num_graded: (P,) completions of each prompt that have a grade.
        k: completions drawn without replacement.
    """
    pairs = [(int(c), int(n)) for c, n in zip(num_passed, num_graded, strict=True) if n >= k]
    return np.array([1.0 - math.comb(n - c, k) / math.comb(n, k) for c, n in pairs], dtype=np.float64)


def majority_at_k(votes: Sequence[Sequence[Vote]], *, k: int) -> FloatArray:
    """(P',) share of votes of k completions that pass, for the prompts with k graded ones or more.

    Votes are taken over neighbouring completions, which no one shares: their mean is unbiased without drawing any. A tie
    counts as the mean of its answers, and a vote in which all abstain does not pass.

    Args:
        votes: (P, n) the graded completions of each prompt, in order.
        k: completions that vote.
    """
    blocks = [[prompt[start : start + k] for start in range(0, len(prompt) - k + 1, k)] for prompt in votes if len(prompt) >= k]
    return np.array([fmean(_outcome(block) for block in of_prompt) for of_prompt in blocks], dtype=np.float64)


def measured(values: FloatArray, *, trials_per_prompt: int, level: float) -> Measured | None:
    """The mean of one number in [0, 1] for each prompt, with Wilson's interval at `level`; None where there is no prompt.

    With m prompts of variance s^2 about their mean p the interval is that of p (1 - p) / (s^2 / m) binomial trials, at least m
    (a number in [0, 1] varies no more than a coin) and at most `trials_per_prompt` times m. With one completion a prompt
    it is Wilson's interval itself.
    """
    num_prompts = values.size
    if not num_prompts:
        return None
    mean, variance = float(values.mean()), float(values.var())
    trials = num_prompts * min(mean * (1.0 - mean) / variance, trials_per_prompt) if variance > 0.0 else float(num_prompts)
    low, high = wilson_interval(mean, trials=max(trials, num_prompts), level=level)
    # At 0 and 1 the interval ends at the mean, but for rounding.
    return Measured(mean, min(low, mean), max(high, mean), num_prompts)


def wilson_interval(share: float, *, trials: float, level: float) -> tuple[float, float]:
    """Wilson's score interval for a probability of which `share` was seen in `trials` (Wilson 1927)."""
    z2 = NormalDist().inv_cdf(0.5 + level / 2.0) ** 2
    centre = (share + z2 / (2.0 * trials)) / (1.0 + z2 / trials)
    half = math.sqrt(z2 * (share * (1.0 - share) / trials + z2 / (4.0 * trials**2))) / (1.0 + z2 / trials)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def _outcome(block: Sequence[Vote]) -> float:
    """Whether the most frequent answer of a vote passes; the mean over a tie."""
    counts = Counter(vote.answer for vote in block if vote.answer is not None)
    most = max(counts.values(), default=0)
    leaders = {answer for answer, count in counts.items() if count == most}
    return fmean(fmean(vote.passed for vote in block if vote.answer == leader) for leader in leaders) if leaders else 0.0
