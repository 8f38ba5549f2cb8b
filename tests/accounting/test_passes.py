"""mean@n, pass@k and maj@k against enumeration, and their intervals against many repetitions."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scalerl.accounting.passes import Vote, majority_at_k, measured, pass_at_k, wilson_interval


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_is_the_mean_over_all_subsets(passed, k):
    values = pass_at_k(np.array([sum(passed)]), np.array([len(passed)]), k=k)
    subsets = [any(subset) for subset in itertools.combinations(passed, k)]
    assert values.tolist() == pytest.approx([np.mean(subsets)] if subsets else [])


def test_pass_at_k_by_hand():
    # C(4-1, 2) / C(4, 2) = 3 / 6; C(4-3, 2) = 0; the third prompt has too few graded completions
    assert pass_at_k(np.array([1, 3, 1]), np.array([4, 4, 1]), k=2).tolist() == [0.5, 1.0]


def votes(text):
    """Letters are answers, upper case ones pass, a dot abstains."""
    return [Vote(None if letter == "." else letter.lower(), letter.isupper()) for letter in text]


@pytest.mark.parametrize(
    ("text", "k", "value"),
    [
        ("AAb", 3, 1.0),
        ("Abb", 3, 0.0),
        ("Ab", 2, 0.5),  # a tie counts as its mean
        ("Abc", 3, 1.0 / 3.0),
        ("A..", 3, 1.0),  # who abstains does not outvote
        ("...", 3, 0.0),
        ("AAbbbA", 3, 0.5),  # AAb passes, bbA does not
        ("AAbAA", 2, 0.75),  # AA, bA; the fifth is left over
    ],
)
def test_majorities_by_hand(text, k, value):
    assert majority_at_k([votes(text)], k=k).tolist() == pytest.approx([value])


def test_a_prompt_with_too_few_votes_is_left_out():
    assert majority_at_k([votes("A"), votes("AA")], k=2).tolist() == [1.0]


def test_with_one_completion_a_prompt_the_interval_is_wilsons():
    # Newcombe 1998, table I: 81 of 263 at 95 % gives .2553 to .3662
    found = measured(np.array([1.0] * 81 + [0.0] * 182), trials_per_prompt=1, level=0.95)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(81 / 263, trials=263, level=0.95) == pytest.approx((found.low, found.high))
    assert measured(np.zeros(20), trials_per_prompt=8, level=0.9).high == pytest.approx(2.706 / 22.706, abs=1e-3)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=30))
@example([0, 0, 0])
def test_more_completions_of_the_same_prompts_never_count_as_more_than_they_are(passed):
    values = np.array(passed) / 8.0
    found, few, many = (measured(values, trials_per_prompt=trials, level=0.9) for trials in (8, 1, 8))
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    assert few.high - few.low >= many.high - many.low - 1e-12
    low, high = wilson_interval(found.value, trials=8 * len(passed), level=0.9)
    assert found.low <= low + 1e-12
    assert found.high >= high - 1e-12


@pytest.mark.parametrize(("alpha", "beta", "num_prompts"), [(0.5, 0.5, 60), (2.0, 6.0, 60), (8.0, 1.0, 200)])
def test_the_interval_holds_the_mean_over_prompts_as_often_as_it_says(alpha, beta, num_prompts):
    """Prompts of different difficulty, eight completions each: 2,000 evaluations."""
    random = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        values = random.binomial(8, random.beta(alpha, beta, num_prompts)) / 8.0
        found = measured(values, trials_per_prompt=8, level=0.9)
        held += found.low <= alpha / (alpha + beta) <= found.high
    assert 0.875 <= held / 2000 <= 0.935


def test_no_prompt_is_no_measurement():
    assert measured(np.zeros(0), trials_per_prompt=1, level=0.9) is None
