"""Counter-based randomness: a draw depends on what it is for, never on what was drawn before it.

A completion's tokens are the same whatever slot, process or resume samples them, because the generator is a pure
function of (seed, purpose, prompt, epoch) as its key and (completion, position) as its counter:

    Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11, section 3.3)

written here for arrays of counters, since NumPy's own Philox is a sequential stream (one object per counter costs
about 10 us; a decode step needs hundreds of independent draws). Oracle: the known answers of the Random123 library.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW_32 = np.uint64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)
_NUM_ROUNDS = 10

Word = NDArray[np.uint64]


def philox4x32(counter: tuple[Word, Word, Word, Word], key: tuple[ArrayLike, ArrayLike]) -> tuple[Word, Word, Word, Word]:
    """Four 32-bit words for each counter; counters are uint64 arrays of one shape that hold 32-bit values.

    A key is one pair of numbers for all counters, or a pair of arrays of their shape.
    """
    word_0, word_1, word_2, word_3 = counter
    key_0, key_1 = _as_words(key[0]), _as_words(key[1])
    for _ in range(_NUM_ROUNDS):
        product_0, product_1 = word_0 * _MULTIPLIER_0, word_2 * _MULTIPLIER_1
        word_0, word_1, word_2, word_3 = (
            (product_1 >> _SHIFT_32) ^ word_1 ^ key_0,
            product_1 & _LOW_32,
            (product_0 >> _SHIFT_32) ^ word_3 ^ key_1,
            product_0 & _LOW_32,
        )
        key_0, key_1 = (key_0 + _WEYL_0) & _LOW_32, (key_1 + _WEYL_1) & _LOW_32
    return word_0, word_1, word_2, word_3


def stream_key(seed: int, purpose: str, *labels: str | int) -> tuple[int, int]:
    """The key of an independent stream, the same on every machine: a hash of the seed and of what the stream is for.

    `labels` name the stream within its purpose, e.g. the prompt id and the epoch.
    """
    text = "\x1f".join([str(seed), purpose, *(f"{type(label).__name__}:{label}" for label in labels)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def uniform(key: tuple[ArrayLike, ArrayLike], completion: ArrayLike, position: ArrayLike) -> NDArray[np.float64]:
    """Uniform draws in [0, 1), one per (completion, position) pair, of their broadcast shape.

    The key is one of `stream_key`, or a pair of arrays of that shape: a stream for each draw. Counters are integers in
    [0, 2**32). 53 random bits per draw, as NumPy's own uniforms have.
    """
    completions, positions = np.broadcast_arrays(_as_words(completion), _as_words(position))
    zero = np.zeros_like(completions)
    high, low, _, _ = philox4x32((completions, positions, zero, zero), key)
    return ((high >> np.uint64(5)) * 67108864.0 + (low >> np.uint64(6))) / 9007199254740992.0


def permutation(key: tuple[int, int], length: int) -> NDArray[np.intp]:
    """A random order of `range(length)`; the sort is stable, so ties (probability 2**-53) change nothing."""
    return np.argsort(uniform(key, 0, np.arange(length)), kind="stable")


def _as_words(counter: ArrayLike) -> NDArray[np.uint64]:
    values: NDArray[Any] = np.asarray(counter)
    assert values.dtype.kind in "ui", "counters are integers"
    assert values.size == 0 or (values.min() >= 0 and values.max() < 2**32), "counters are 32-bit and not negative"
    return values.astype(np.uint64)
