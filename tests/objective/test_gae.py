"""Generalized advantages: against the double sum of the paper, and its two ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scalerl.objective.advantages._gae import generalized_advantages

shares = st.sampled_from([0.0, 0.5, 0.9, 0.95, 1.0])
values = arrays(np.float64, st.integers(1, 12), elements=st.floats(-2.0, 2.0))


def oracle(values: np.ndarray, reward: float, *, discount: float, decay: float) -> list[float]:
    """arXiv 1506.02438, eq. 16: A_t = sum_l (discount decay)^l delta_t+l, each sum written out."""
    num_tokens = len(values)
    rewards = [0.0] * (num_tokens - 1) + [reward]
    after = [*values[1:].tolist(), 0.0]
    deltas = [rewards[t] + discount * after[t] - values[t] for t in range(num_tokens)]
    return [sum((discount * decay) ** (later - t) * deltas[later] for later in range(t, num_tokens)) for t in range(num_tokens)]


@given(values=values, reward=st.sampled_from([-1.0, 0.0, 0.25, 1.0]), discount=shares, decay=shares)
def test_advantages_are_the_papers_sum(values, reward, discount, decay):
    before = values.copy()
    advantages, returns = generalized_advantages(values, reward, discount=discount, decay=decay)
    np.testing.assert_allclose(advantages, oracle(values, reward, discount=discount, decay=decay), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(returns, advantages + values, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(values, before)


@given(values=values, discount=shares)
def test_without_decay_of_memory_the_return_is_the_discounted_reward(values, discount):
    """decay 1: what the critic said of later states cancels, eq. 18."""
    _, returns = generalized_advantages(values, 1.0, discount=discount, decay=1.0)
    np.testing.assert_allclose(returns, discount ** np.arange(len(values))[::-1], atol=1e-12)


@given(values=values, discount=shares)
def test_without_memory_each_value_is_compared_with_the_next(values, discount):
    """decay 0: the one-step error, eq. 17."""
    advantages, _ = generalized_advantages(values, 0.5, discount=discount, decay=0.0)
    expected = discount * np.append(values[1:], 0.0) - values
    expected[-1] = 0.5 - values[-1]
    np.testing.assert_allclose(advantages, expected, atol=1e-15)


def test_a_perfect_critic_leaves_nothing_to_learn():
    advantages, returns = generalized_advantages(np.ones(7), 1.0, discount=1.0, decay=0.9)
    assert advantages.tolist() == [0.0] * 7
    assert returns.tolist() == [1.0] * 7


def test_one_token_and_none():
    advantages, returns = generalized_advantages(np.array([0.25]), 1.0, discount=0.9, decay=0.9)
    assert (advantages.tolist(), returns.tolist()) == ([0.75], [1.0])
    empty = generalized_advantages(np.zeros(0), 1.0, discount=0.9, decay=0.9)
    assert [part.tolist() for part in empty] == [[], []]


def test_a_long_completion_keeps_its_first_token_apart():
    """32k tokens at decay .95: the reward reaches 20 tokens back, the values each their own."""
    values = np.random.default_rng(0).normal(size=32_768)
    advantages, _ = generalized_advantages(values, 1.0, discount=1.0, decay=0.95)
    assert advantages[-1] == pytest.approx(1.0 - values[-1], rel=1e-12)
    assert advantages[0] == pytest.approx(oracle(values[:800], 0.0, discount=1.0, decay=0.95)[0], rel=1e-9)
