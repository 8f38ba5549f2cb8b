"""The critic's arithmetic, without a network: advantages of tokens and the scale of a batch. What is trained: tests/trainers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scalerl.core.errors import UsageError
from scalerl.objective.advantages import Advantage
from scalerl.objective.advantages.critic import Critic

completions = st.lists(arrays(np.float64, st.integers(0, 6), elements=st.floats(-2.0, 2.0)), max_size=5)


def test_tokens_are_compared_with_discount_and_decay_in_their_places():
    """Values .5 and .25, reward 1, discount .8, decay .5: deltas -.3 and .75, A_0 = -.3 + .4 x .75 = 0."""
    advantages, returns = Critic(discount=0.8, decay=0.5).of_tokens(np.array([0.5, 0.25]), 1.0)
    np.testing.assert_allclose(advantages, [0.0, 0.75], atol=1e-15)
    np.testing.assert_allclose(returns, [0.5, 1.0], rtol=1e-15)


def test_by_default_the_return_is_the_reward():
    """arXiv 2503.24290: discount and decay of 1."""
    advantages, returns = Critic().of_tokens(np.array([0.5, -0.25, 0.125]), 1.0)
    assert returns.tolist() == [1.0] * 3
    assert advantages.tolist() == [0.5, 1.25, 0.875]


@given(batch=completions)
def test_the_divisor_is_the_std_over_all_own_tokens(batch):
    """Of a batch of completions of any length, 0 included; 1 where nothing differs or there is nothing."""
    tokens = [token for completion in batch for token in completion.tolist()]
    mean = sum(tokens) / max(len(tokens), 1)
    std = (sum((token - mean) ** 2 for token in tokens) / max(len(tokens), 1)) ** 0.5
    divisor = Critic(scale="batch").divisor(batch)
    assert divisor == pytest.approx(std, rel=1e-9, abs=1e-15) or (std < 1e-9 and divisor == 1.0)
    assert Critic(scale="none").divisor(batch) == 1.0


@pytest.mark.parametrize("batch", [[], [np.zeros(0)], [np.zeros(0), np.zeros(0)], [np.zeros(3)], [np.full(2, 0.5), np.full(4, 0.5)]])
def test_a_batch_in_which_nothing_differs_is_divided_by_one(batch):
    assert Critic().divisor(batch) == 1.0


def test_an_empty_completion_does_not_hide_the_others():
    assert Critic().divisor([np.zeros(0), np.array([1.0, -1.0])]) == 1.0
    assert Critic().divisor([np.array([3.0, -3.0]), np.zeros(0)]) == 3.0


def test_scores_are_handed_on_as_they_are():
    scores = np.array([1.0, np.nan, 0.5])
    np.testing.assert_array_equal(Critic().compared(scores), scores)


def test_the_defaults_and_what_no_group_is_needed_for():
    assert Critic().model_dump() == {
        "scale": "batch",
        "discount": 1.0,
        "decay": 1.0,
        "value_clip": 0.2,
        "passes": 1,
        "learning_rate_factor": 5.0,
    }
    assert Critic.least_group == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"discount": 0.0, "decay": 0.0},
        {"discount": 1.0, "decay": 1.0},
        {"value_clip": None},
        {"value_clip": 1e-6},
        {"passes": 1},
        {"learning_rate_factor": 0.5},
    ],
)
def test_the_edges_of_what_can_be_set(settings):
    assert Critic(**settings).model_dump(include=set(settings)) == settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scale", "group"),
        ("discount", -0.1),
        ("discount", 1.1),
        ("decay", -0.1),
        ("decay", 1.1),
        ("value_clip", 0.0),
        ("passes", 0),
        ("learning_rate_factor", 0.0),
    ],
)
def test_settings_that_mean_nothing_are_refused(key, value):
    with pytest.raises(UsageError, match=f"its {key} cannot be used"):
        Advantage.family.select({"type": "critic", key: value})
