"""Aggregations: weights against arithmetic; micro-batches and empty completions cannot change the gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scalerl.core.errors import UsageError
from scalerl.objective.aggregations import Aggregation
from scalerl.objective.aggregations.constant import Constant
from scalerl.objective.losses.cispo import Cispo
from scalerl.testing.families import example
from tests.objective.oracle import OBJECTIVES, label, value_and_gradient

ALL = Aggregation.family.names()
MEANS = [name for name in ALL if name != "constant"]
batches = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=5), min_size=1, max_size=4)


def weights_of(name: str, batch: list[list[int]]) -> list[np.ndarray]:
    return example(Aggregation.family.get(name)).weights([np.array(group, dtype=np.int64) for group in batch])


def mean_of(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def oracle(name: str, losses: list[list[list[float]]]) -> float:
    """The batch's loss from its definition; `losses` holds each token's, by prompt and completion."""
    prompts = [[token for completion in prompt for token in completion] for prompt in losses]
    constant = example(Constant).tokens
    return {
        "token": mean_of([token for prompt in prompts for token in prompt]),
        "sample": mean_of([mean_of(completion) for prompt in losses for completion in prompt if completion]),
        "prompt": mean_of([mean_of(prompt) for prompt in prompts if prompt]),
        "constant": mean_of([sum(completion) / constant for prompt in losses for completion in prompt if completion]),
    }[name]


@pytest.mark.parametrize("name", ALL)
@given(batch=batches, seed=st.integers(0, 99))
def test_the_weighted_sum_is_what_it_stands_for(name, batch, seed):
    draw = np.random.default_rng(seed)
    losses = [[draw.normal(size=tokens).tolist() for tokens in group] for group in batch]
    weights = weights_of(name, batch)
    total = sum(
        weight * sum(completion)
        for group, prompt in zip(weights, losses, strict=True)
        for weight, completion in zip(group, prompt, strict=True)
    )
    assert total == pytest.approx(oracle(name, losses), rel=1e-12, abs=1e-12)
    assert all((group[np.array(tokens) == 0] == 0.0).all() for group, tokens in zip(weights, batch, strict=True))


@pytest.mark.parametrize("name", MEANS)
@given(batch=batches)
def test_the_weights_of_a_mean_sum_to_one(name, batch):
    of_tokens = sum(float(group @ tokens) for group, tokens in zip(weights_of(name, batch), batch, strict=True))
    assert of_tokens == pytest.approx(1.0 if any(map(any, batch)) else 0.0)


def test_a_constant_length_does_not_know_the_completions_own():
    """Dr. GRPO: one weight for every token of the batch, 1 / (3 completions that count x 10), and no more than that."""
    weights = Constant(tokens=10).weights([np.array([2, 0, 8]), np.array([10])])
    np.testing.assert_allclose(np.concatenate(weights), [1 / 30, 0.0, 1 / 30, 1 / 30], rtol=1e-15)
    assert sum(float(group @ tokens) for group, tokens in zip(weights, ([2, 0, 8], [10]), strict=True)) == pytest.approx(2 / 3)


def test_a_constant_length_of_one_is_the_mean_of_the_sums():
    assert [group.tolist() for group in Constant(tokens=1).weights([np.array([5])])] == [[1.0]]
    with pytest.raises(UsageError, match="its tokens cannot be used"):
        Aggregation.family.select({"type": "constant", "tokens": 0})


def test_a_group_of_one_is_an_ordinary_group():
    for name, weight in {"token": 1 / 6, "sample": 1 / 8, "prompt": 1 / 8, "constant": 1 / (2 * example(Constant).tokens)}.items():
        first, second = weights_of(name, [[4], [2]])
        assert first[0] == pytest.approx(weight)
        assert second[0] == pytest.approx(weight * (2.0 if name in ("sample", "prompt") else 1.0))


@pytest.mark.parametrize(("name", "loss", "first"), [("token", 7 / 24, 1 / 24), ("sample", 0.4625, 1 / 8), ("prompt", 0.3071429, 1 / 20)])
def test_case_l1_the_denominators_are_global(name, loss, first):
    """Prompt P: completions of 2 and 8 tokens, Q: of 10 and 4, each with a constant loss per token."""
    weights = weights_of(name, [[2, 8], [10, 4]])
    assert weights[0][0] == pytest.approx(first)
    per_completion = np.concatenate(weights) * [2 * 1.0, 8 * 0.25, 10 * 0.1, 4 * 0.5]
    for split in ([4], [1, 3], [1, 1, 1, 1]):
        parts = np.split(per_completion, np.cumsum(split)[:-1])
        assert sum(part.sum() for part in parts) == pytest.approx(loss, rel=1e-6)


class TestCaseL2:
    """Completions that are switched off leave the denominator with the numerator."""

    @pytest.mark.parametrize("name", ALL)
    def test_a_masked_completion_is_not_counted(self, name):
        """The constant divides by completions, too: 6 x .5 over one of them and its length, as if the other had not been."""
        for batch in ([[6, 0]], [[6], [0]]):
            weights = np.concatenate(weights_of(name, batch))
            expected = 3.0 / example(Constant).tokens if name == "constant" else 0.5
            assert (weights * [6 * 0.5, 10 * 0.9]).sum() == pytest.approx(expected)

    @pytest.mark.parametrize("name", ALL)
    def test_a_batch_of_masked_completions_has_loss_and_gradient_zero(self, name):
        (weights,) = weights_of(name, [[0]])
        values, gradient = value_and_gradient(
            Cispo(), *np.full((2, 1, 10), -0.9), np.ones((1, 1)), np.zeros((1, 10), np.bool_), weights=weights[:, None] * np.ones((1, 10))
        )
        assert weights.tolist() == [0.0]
        assert (values == 0.0).all()
        assert (gradient == 0.0).all()

    @pytest.mark.parametrize("name", ALL)
    def test_a_batch_filtered_to_nothing_has_no_weights(self, name):
        assert weights_of(name, []) == []


@pytest.mark.parametrize("loss", [pytest.param(loss, id=label(loss)) for loss in OBJECTIVES])
@pytest.mark.parametrize("name", ALL)
@settings(max_examples=15)
@given(batch=batches, seed=st.integers(0, 99), data=st.data())
def test_micro_batches_do_not_change_the_gradient(name, loss, batch, seed, data):
    """Completions in any order, cut anywhere, padded to each part's longest with NaN: 1e-12 in fp64, 1e-5 in fp32.

    Advantages differ from token to token, as a critic's do.
    """
    draw = np.random.default_rng(seed)
    num_tokens = [tokens for group in batch for tokens in group]
    old = [-draw.exponential(size=tokens) for tokens in num_tokens]
    new = [row + draw.normal(0.0, 0.3, size=row.size) for row in old]
    advantages = [draw.normal(size=tokens) for tokens in num_tokens]
    weights = np.concatenate(weights_of(name, batch))
    order = data.draw(st.permutations(range(len(num_tokens))))
    cuts = data.draw(st.lists(st.integers(0, len(order)), max_size=3).map(sorted))

    def gradient_of(parts: list[list[int]], dtype: torch.dtype) -> np.ndarray:
        rows: dict[int, np.ndarray] = {}
        for part in parts:
            mask = np.arange(max(num_tokens[i] for i in part))[None] < np.array([num_tokens[i] for i in part])[:, None]
            padded = np.full((3, *mask.shape), np.nan)
            for place, side in zip(padded, (new, old, advantages), strict=True):
                place[mask] = np.concatenate([side[i] for i in part])
            spread = weights[part][:, None] * np.ones(mask.shape)
            _, gradient = value_and_gradient(loss, *padded, mask, weights=spread, dtype=dtype)
            rows.update({i: gradient[row, : num_tokens[i]] for row, i in enumerate(part)})
        return np.concatenate([rows[i] for i in range(len(num_tokens))])

    parts = [part.tolist() for part in np.split(np.array(order), cuts) if part.size]
    whole = gradient_of([list(range(len(num_tokens)))], torch.float64)
    np.testing.assert_allclose(gradient_of(parts, torch.float64), whole, rtol=1e-12, atol=1e-15)
    single = gradient_of([list(range(len(num_tokens)))], torch.float32)
    np.testing.assert_allclose(gradient_of(parts, torch.float32), single, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ALL)
@given(batch=batches, data=st.data())
def test_two_ranks_have_the_weights_of_one(name, batch, data):
    """Weights are computed over the whole batch and handed out, so that the groups' order and place are of no account."""
    order = data.draw(st.permutations(range(len(batch))))
    weights = weights_of(name, batch)
    for place, group in zip(order, weights_of(name, [batch[place] for place in order]), strict=True):
        np.testing.assert_array_equal(group, weights[place])
