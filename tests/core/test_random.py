"""Counter-based randomness against the known answers of Random123 (kat_vectors, philox 4x32 10), and its promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.core.random import permutation, philox4x32, stream_key, uniform

KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, answer):
    words = philox4x32(tuple(np.array([word], dtype=np.uint64) for word in counter), key)
    assert tuple(int(word[0]) for word in words) == answer


def test_a_draw_does_not_depend_on_which_others_are_drawn_with_it():
    key = stream_key(7, "sample", "prompt-3", 2)
    together = uniform(key, np.arange(5)[:, None], np.arange(11))
    alone = [[float(uniform(key, completion, position)) for position in range(11)] for completion in range(5)]
    np.testing.assert_array_equal(together, alone)


def test_every_draw_may_have_a_key_of_its_own():
    keys = [stream_key(7, "sample", prompt) for prompt in range(5)]
    completion, position = np.arange(5), np.array([3, 0, 2, 9, 1])
    together = uniform(tuple(np.array(keys).T), completion, position)
    np.testing.assert_array_equal(together, [uniform(*draw) for draw in zip(keys, completion, position, strict=True)])


def test_keys_tell_labels_apart_and_are_the_same_on_every_machine():
    assert stream_key(0, "sample", "1") != stream_key(0, "sample", 1)
    assert stream_key(0, "sample", "a", "b") != stream_key(0, "sample", "a\x1eb")
    assert stream_key(1, "sample") != stream_key(0, "sample")
    assert stream_key(0, "order", "epoch", 3) == (288310713, 2349238709)


def test_draws_are_uniform():
    draws = uniform(stream_key(0, "uniformity"), 0, np.arange(200_000))
    counts = np.histogram(draws, bins=100, range=(0.0, 1.0))[0]
    # Chi-square with 99 degrees of freedom: 148.2 is its 99.9 % quantile; the stream is fixed, so this cannot flicker.
    assert ((counts - 2000.0) ** 2 / 2000.0).sum() < 148.2
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.01


@given(st.integers(0, 2**31), st.integers(0, 300))
def test_a_permutation_holds_every_index_once(seed, length):
    assert sorted(permutation(stream_key(seed, "order"), length)) == list(range(length))
