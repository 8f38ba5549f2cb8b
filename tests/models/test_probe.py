"""The probe is the same on both sides, and exists for any prompts."""

import numpy as np

from scalerl.models._probe import probe_of, scored


def test_sequences_are_cut_in_two_and_those_too_short_are_left_out() -> None:
    probe = probe_of(["abcde", "a", "", "abcdefgh", "ab"], encode=lambda text: [ord(letter) - 97 for letter in text], max_tokens=6)
    assert probe == [((0, 1), (2, 3, 4)), ((0, 1, 2), (3, 4, 5)), ((0,), (1,))]


def test_without_sequences_nobody_is_asked() -> None:
    class Unasked:
        def score(self, probe):
            raise AssertionError(probe)

    assert scored(Unasked(), probe_of(["a"], encode=lambda text: [0], max_tokens=6)).shape == (0,)


def test_either_side_scores_the_continuations() -> None:
    class Side:
        def score(self, probe):
            return np.concatenate([np.array(continuation, np.float32) for _, continuation in probe])

    assert scored(Side(), [((1,), (2, 3)), ((4,), (5,))]).tolist() == [2.0, 3.0, 5.0]
