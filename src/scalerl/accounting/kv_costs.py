"""What a KV policy costs at a length, an interval between updates, and a number of rows: arithmetic on measured rates.

A completion of L tokens after a prompt of p, with a push after every K of its tokens at a phase of no preference, is computed
anew L/K times, each time all its tokens but the last; summed over its life, with C the binomial coefficient,

    tokens = [p (L - 1) + C(L - 1, 2)] / K                  O(L^2 / K)
    pairs  = [C(p + L, 3) - C(p + 1, 3)] / K                O(L^3 / K) (token, key) pairs of attention

    re-prefill seconds = a tokens + b pairs                 least squares over a run's own pushes, a and b not negative
    decode seconds     = c L + b pairs of decoding          c from the run's seconds per token

Decoding's attention is charged at re-prefill's price; reading a cache token by token is dearer, so shares of re-prefill at longer
lengths are upper bounds.

Draining has no work of its own: slots stand idle until the longest completion in flight has ended. R slots begin together, get
a new completion whenever one ends, and are asked to drain K tokens later; what is left of each then has the distribution of a
renewal process's forward recurrence time Y, and

    idle share = (E[max of R of Y] - E[Y]) / (K + E[max of R of Y])
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CELLS = 256
"""Of the longest completion: lengths are counted in these when a drain is forecast."""
_SETTLED = 64 * _CELLS
"""By then the common begin of all slots is as good as forgotten, and not a 64th of their time stands idle."""


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens to be computed, and the (token, key) pairs of their attention."""

    tokens: float
    pairs: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of computing tokens in whole passes."""

    s_per_token: float
    s_per_pair: float

    def seconds(self, work: Work) -> float:
        """What `work` takes."""
        return self.s_per_token * work.tokens + self.s_per_pair * work.pairs


class Passes(msgspec.Struct):
    """Sums over passes for the least squares of seconds on tokens and pairs.

    A pass of n tokens weighs 1/n, as errors do whose variance grows with the work: so the fit's total is the measured one.
    """

    num_passes: int = 0
    tokens: float = 0.0
    pairs: float = 0.0
    seconds: float = 0.0
    pairs_pairs: float = 0.0
    """Of pairs^2 / tokens."""
    pairs_seconds: float = 0.0
    """Of pairs x seconds / tokens."""

    def add(self, work: Work, *, seconds: float) -> None:
        """Take in one pass, of a token at least."""
        self.num_passes += 1
        self.tokens += work.tokens
        self.pairs += work.pairs
        self.seconds += seconds
        self.pairs_pairs += work.pairs**2 / work.tokens
        self.pairs_seconds += work.pairs * seconds / work.tokens

    def rates(self) -> Rates | None:
        """The rates that fit the passes best, neither of them negative; None without a pass."""
        if not self.num_passes:
            return None
        alone = Rates(self.seconds / self.tokens, 0.0)
        determinant = self.tokens * self.pairs_pairs - self.pairs**2
        # Passes of one size cannot tell tokens from pairs.
        if determinant <= 1e-9 * self.tokens * self.pairs_pairs:
            return alone
        s_per_pair = (self.tokens * self.pairs_seconds - self.pairs * self.seconds) / determinant
        s_per_token = (self.pairs_pairs * self.seconds - self.pairs * self.pairs_seconds) / determinant
        if s_per_pair < 0.0:
            return alone
        return Rates(s_per_token, s_per_pair) if s_per_token >= 0.0 else Rates(0.0, self.pairs_seconds / self.pairs_pairs)


@dataclass(frozen=True, slots=True)
class Workload:
    """What completions are like, and how often weights change."""

    lengths: Mapping[int, int]
    """Completions by their number of tokens."""
    prompt_tokens: float
    interval_tokens: float
    """K: tokens that a completion gets between two pushes."""
    num_rows: float
    """R: completions decoded at once."""
    prompt_share: float = 1.0
    """Of the prompts of a group's completions, that a re-prefill computes: 1 / G where it computes each once."""

    @property
    def num_completions(self) -> int:
        """Completions that were counted."""
        return sum(self.lengths.values())

    @property
    def mean_tokens(self) -> float:
        """Of a completion."""
        return sum(length * count for length, count in self.lengths.items()) / self.num_completions

    @property
    def longest_tokens(self) -> int:
        """Of a completion."""
        return max(self.lengths)

    def scaled(self, *, length: float = 1.0, interval: float = 1.0) -> Workload:
        """Completions and intervals so many times as long; prompts and rows stay."""
        lengths: dict[int, int] = {}
        for tokens, count in self.lengths.items():
            longer = max(1, round(length * tokens))
            lengths[longer] = lengths.get(longer, 0) + count
        return replace(self, lengths=lengths, interval_tokens=interval * self.interval_tokens)

    def reprefill(self) -> Work:
        """What the mean completion's cache is computed anew with, over its life."""
        pushes = {"prompt_tokens": self.prompt_tokens, "interval_tokens": self.interval_tokens, "prompt_share": self.prompt_share}
        return self._mean([reprefill_of_life(tokens, **pushes) for tokens in self.lengths])

    def decode(self) -> Work:
        """What the mean completion is decoded with."""
        return self._mean([decode_of_life(tokens, prompt_tokens=self.prompt_tokens) for tokens in self.lengths])

    def _mean(self, works: list[Work]) -> Work:
        weights = [count / self.num_completions for count in self.lengths.values()]
        tokens, pairs = (
            sum(weight * amount for weight, amount in zip(weights, amounts, strict=True))
            for amounts in ([work.tokens for work in works], [work.pairs for work in works])
        )
        return Work(tokens, pairs)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the policies cost at other lengths and intervals; a kept cache costs nothing."""

    mean_tokens: float
    """Of a completion."""
    interval_tokens: float
    """That a completion gets between two pushes."""
    num_pushes: float
    """In the life of the mean completion."""
    least_k: int
    """Pushes in the life of the longest completion: with a smaller k training waits for it."""
    reprefill_tokens: float
    """Computed anew for each token that is decoded."""
    reprefill_share: float | None
    """Of the time of generation and re-prefill together; None where nothing was computed anew, so that its price is not known."""
    drain_idle_share: float
    """Of the slots' time."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run measured."""

    load: Workload
    needed: Work
    """What computing its cache anew took, or would have taken, in the life of the mean completion."""
    rates: Rates | None
    s_per_token: float
    """Of generation."""

    def at(self, *, length: float = 1.0, interval: float = 1.0) -> Forecast:
        """The costs where completions and intervals are so many times as long: the measured ones, scaled as the equations say."""
        then = self.load.scaled(length=length, interval=interval)
        model, model_then = self.load.reprefill(), then.reprefill()
        needed = Work(self.needed.tokens * model_then.tokens / model.tokens, self.needed.pairs * model_then.pairs / model.pairs)
        decoded = then.decode()
        share = None
        if self.rates is not None:
            anew_s = self.rates.seconds(needed)
            share = anew_s / (anew_s + self._decode_s(decoded, self.rates))
        return Forecast(
            mean_tokens=then.mean_tokens,
            interval_tokens=then.interval_tokens,
            num_pushes=then.mean_tokens / then.interval_tokens,
            least_k=math.ceil(then.longest_tokens / then.interval_tokens),
            reprefill_tokens=needed.tokens / decoded.tokens,
            reprefill_share=share,
            drain_idle_share=drain_idle_share(then),
        )

    def _decode_s(self, decoded: Work, rates: Rates) -> float:
        now = self.load.decode()
        s_per_token = max(self.s_per_token - rates.s_per_pair * now.pairs / now.tokens, 0.0)
        return s_per_token * decoded.tokens + rates.s_per_pair * decoded.pairs


def reprefill_of_life(length: float, *, prompt_tokens: float, interval_tokens: float, prompt_share: float = 1.0) -> Work:
    """What the pushes of one completion's life compute anew; exact in the mean over the phase of pushes.

    Args:
        prompt_share: of the prompt that counts, where a group's completions share the computation of theirs.
    """
    p, n = prompt_tokens, length
    spared = (1.0 - prompt_share) * (n - 1.0)
    tokens = p * (n - 1.0) + (n - 1.0) * (n - 2.0) / 2.0 - spared * p
    pairs = _choose_3(p + n) - _choose_3(p + 1.0) - spared * p * (p + 1.0) / 2.0
    return Work(tokens / interval_tokens, pairs / interval_tokens)


def decode_of_life(length: float, *, prompt_tokens: float) -> Work:
    """The tokens of one completion, each of which attends to all before it and to itself."""
    return Work(length, length * prompt_tokens + length * (length + 1.0) / 2.0)


def drain_idle_share(load: Workload) -> float:
    """Share of the slots' time that stands idle where every push waits for all that is in flight."""
    cell = load.longest_tokens / _CELLS
    chance = np.zeros(_CELLS + 1)  # of a completion being so many cells long
    for tokens, count in load.lengths.items():
        chance[max(1, round(tokens / cell))] += count / load.num_completions
    asked = round(load.interval_tokens / cell)
    # Later pushes find what earlier ones do at the same phase: where lives have a common span, the longest is a multiple of it.
    left = _forward_recurrence(chance, min(asked, _SETTLED + asked % _CELLS))
    longest = float((1.0 - np.cumsum(left).clip(max=1.0) ** max(1, round(load.num_rows))).sum())
    mean = float((np.arange(left.size) * left).sum())
    return (longest - mean) / (asked + longest)


def _forward_recurrence(chance: Floats, time: int) -> Floats:
    """(n,) probabilities of what is left, in cells, of the life that is on at `time` where lives follow each other from 0 on."""
    begins = np.zeros(time + 1)
    begins[0] = 1.0
    longest = chance.size - 1
    for at in range(1, time + 1):
        reach = min(at, longest)
        begins[at] = float(chance[1 : reach + 1] @ begins[at - reach : at][::-1])
    left = np.zeros(chance.size)
    for age in range(min(time, longest) + 1):
        ends = chance[age + 1 :]
        left[1 : ends.size + 1] += begins[time - age] * ends
    return left


def _choose_3(n: float) -> float:
    return n * (n - 1.0) * (n - 2.0) / 6.0
