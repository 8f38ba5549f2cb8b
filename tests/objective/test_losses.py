"""Losses: value and gradient of each against its equation, and what must never leak or overflow."""

import json
import math
from operator import methodcaller
from pathlib import Path

import numpy as np
import pytest
import torch

from scalerl.objective.aggregations import Aggregation
from scalerl.objective.losses import Loss
from scalerl.objective.losses.cispo import Cispo
from scalerl.objective.losses.dapo import Dapo
from scalerl.objective.losses.grpo import Grpo
from scalerl.objective.losses.gspo import Gspo
from scalerl.objective.losses.reinforce import Reinforce
from scalerl.objective.ratios import LARGEST_LOG_RATIO
from tests.objective.oracle import OBJECTIVES, central_differences, objective, value_and_gradient

PEERS = json.loads((Path(__file__).parent / "peers.json").read_text())
ALL = [pytest.param(loss, id=loss.name()) for loss in OBJECTIVES]
RATIO_LOSSES = [pytest.param(loss, id=loss.name()) for loss in OBJECTIVES if loss != Reinforce()]


def drawn(seed: int, *, rows: int = 6, columns: int = 5):
    """Log-probs, behaviour, advantages, mask and weights with ratios on both sides of every bound; the first row is empty."""
    draw = np.random.default_rng(seed)
    old = -draw.exponential(1.0, (rows, columns))
    new = old + draw.normal(0.0, 0.3, (rows, columns))
    mask = draw.random((rows, columns)) < 0.7
    mask[0] = False
    return new, old, draw.normal(0.0, 1.0, (rows, 1)), mask, draw.random((rows, columns))


def one_token(loss: Loss, new: float, old: float, advantage: float) -> tuple[float, float]:
    """The loss (to be minimised) of a single fp32 token and its gradient."""
    values, gradient = value_and_gradient(
        loss, *np.array([[[new]], [[old]], [[advantage]]]), np.ones((1, 1), np.bool_), weights=-np.ones((1, 1)), dtype=torch.float32
    )
    return -values.item(), gradient.item()


def clipped(loss: Loss, new: float, old: float, advantage: float) -> bool:
    return bool(loss.clipped(*torch.tensor([new, old, advantage]).reshape(3, 1, 1), torch.ones(1, 1, dtype=torch.bool)))


def test_every_loss_has_an_oracle():
    assert {loss.name() for loss in OBJECTIVES} >= set(Loss.family.names())


@pytest.mark.parametrize("loss", ALL)
@pytest.mark.parametrize("seed", range(4))
def test_value_and_gradient_follow_from_the_equation(loss, seed):
    new, old, advantages, mask, weights = drawn(seed)
    values, gradient = value_and_gradient(loss, new, old, advantages, mask, weights=weights)
    np.testing.assert_allclose(values, objective(loss, new, old, advantages, mask, at=new), rtol=1e-12, atol=1e-15)
    expected = central_differences(lambda moved: float((weights * objective(loss, moved, old, advantages, mask, at=new)).sum()), new)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", ALL)
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
def test_masked_tokens_change_nothing_and_get_no_gradient(loss, rubbish, dtype):
    """Inserted tokens and padding: whatever stands there, values and gradients elsewhere stay bit for bit."""
    new, old, advantages, mask, weights = drawn(0)
    clean_values, clean_gradient = value_and_gradient(loss, new, old, advantages, mask, weights=weights, dtype=dtype)
    for dirty in ((np.where(mask, new, rubbish), old), (new, np.where(mask, old, rubbish)), (np.where(mask, new, rubbish),) * 2):
        old_dirty = np.where(mask, old, dirty[1])
        values, gradient = value_and_gradient(loss, dirty[0], old_dirty, advantages, mask, weights=weights, dtype=dtype)
        assert (values == clean_values).all()
        assert (gradient == clean_gradient).all()
        assert (values[~mask] == 0.0).all()
        assert (gradient[~mask] == 0.0).all()


@pytest.mark.parametrize("loss", ALL)
def test_a_completion_whose_grading_failed_leaves_no_trace(loss):
    """Its advantage is NaN and all of it is masked."""
    new, old, advantages, mask, weights = drawn(1)
    advantages[0] = np.nan
    values, gradient = value_and_gradient(loss, new, old, advantages, mask, weights=weights)
    assert (values[0] == 0.0).all()
    assert (gradient[0] == 0.0).all()
    assert np.isfinite(values).all()
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("loss", ALL)
def test_on_policy_every_loss_has_the_plain_policy_gradient(loss):
    """At rho = 1 nothing is clipped and d J / d log pi = A, as REINFORCE has it."""
    new, _, advantages, mask, _ = drawn(2)
    _, gradient = value_and_gradient(loss, new, new, advantages, mask, weights=np.ones(mask.shape))
    np.testing.assert_allclose(gradient, np.where(mask, advantages, 0.0), rtol=1e-12)
    assert not loss.clipped(*(torch.tensor(array) for array in (new, new, advantages, mask))).any()


@pytest.mark.parametrize("loss", RATIO_LOSSES)
@pytest.mark.parametrize("seed", range(4))
def test_clipped_tokens_are_those_that_a_bound_holds_back(loss, seed):
    """For clipped ratios: own tokens without gradient; for CISPO: own tokens that weigh the cap."""
    new, old, advantages, mask, _ = drawn(seed)
    _, gradient = value_and_gradient(loss, new, old, advantages, mask, weights=np.ones(mask.shape))
    held = np.isclose(gradient, 1.3 * advantages) if loss == Cispo(cap=1.3) else gradient == 0.0
    marked = loss.clipped(*(torch.tensor(array) for array in (new, old, advantages, mask))).numpy()
    assert (marked == (mask & held)).all()
    assert 0 < marked.sum() < mask.sum()


def test_reinforce_clips_nothing():
    new, old, advantages, mask, _ = drawn(0)
    assert not Reinforce().clipped(*(torch.tensor(array) for array in (new, old, advantages, mask))).any()


@pytest.mark.parametrize(
    ("loss", "new", "old", "advantage", "value", "gradient"),
    [
        pytest.param(Cispo(), -1, -3, 1, 5.0, -5.0, id="t1"),
        pytest.param(Cispo(), -4, -1, -1, -0.1991483, 0.0497871, id="t2"),
        pytest.param(Cispo(), -1, -3, -1, -5.0, 5.0, id="t3"),
        pytest.param(Dapo(clip_high=0.28), -1, -3, 1, -1.28, 0.0, id="t1 clipped on the upper side"),
        pytest.param(Dapo(clip_high=0.28), -1, -3, -1, 7.389056, 7.389056, id="t3 not clipped below"),
    ],
)
def test_case_l4_the_cap_is_an_absolute_ratio(loss, new, old, advantage, value, gradient):
    assert one_token(loss, new, old, advantage) == pytest.approx((value, gradient), rel=1e-6)


class TestCaseL5:
    """Log-ratios of 100, infinite in fp32 after exp, and rubbish at masked places."""

    def test_u1_a_large_ratio_with_a_positive_advantage_meets_the_bound(self):
        assert one_token(Cispo(), -1, -101, 1) == pytest.approx((5.0, -5.0))
        assert one_token(Dapo(clip_high=0.28), -1, -101, 1) == pytest.approx((-1.28, 0.0))
        assert one_token(Grpo(), -1, -101, 1) == pytest.approx((-1.2, 0.0))

    @pytest.mark.parametrize("loss", [Dapo(), Grpo(), Gspo()], ids=methodcaller("name"))
    def test_u2_a_large_ratio_with_a_negative_advantage_is_cut_and_counts_as_clipped(self, loss):
        assert one_token(loss, -1, -101, -1) == pytest.approx((math.exp(LARGEST_LOG_RATIO), 0.0))
        assert clipped(loss, -1, -101, -1)
        assert not clipped(loss, -1, 1 - LARGEST_LOG_RATIO, -1), "below the cut the equation leaves it unbounded"

    def test_u2_with_cispo_weighs_the_cap(self):
        assert one_token(Cispo(), -1, -101, -1) == pytest.approx((-5.0, 5.0))
        assert clipped(Cispo(), -1, -101, -1)

    def test_u3_gspo_averages_before_the_exponential(self):
        values, gradient = value_and_gradient(
            Gspo(),
            np.array([[-1.0, -101.0]]),
            np.array([[-101.0, -1.0]]),
            np.ones((1, 1)),
            np.ones((1, 2), np.bool_),
            weights=np.full((1, 2), 0.5),
            dtype=torch.float32,
        )
        assert values.tolist() == [[1.0, 1.0]]
        assert gradient.tolist() == [[0.5, 0.5]]

    @pytest.mark.parametrize(("loss", "value"), [(Cispo(), 1.0), (Dapo(), -1.0), (Grpo(), -1.0), (Gspo(), -1.0), (Reinforce(), 1.0)])
    def test_u4_masked_tokens_are_not_there(self, loss, value):
        values, gradient = value_and_gradient(
            loss,
            np.array([[-1.0, -math.inf, math.nan]]),
            np.array([[-1.0, 0.0, math.nan]]),
            np.ones((1, 1)),
            np.array([[True, False, False]]),
            weights=-np.ones((1, 3)),
            dtype=torch.float32,
        )
        assert (-values).tolist() == [[value, 0.0, 0.0]]
        assert gradient.tolist() == [[-1.0, 0.0, 0.0]]

    def test_a_vanishing_ratio_needs_no_cut(self):
        for loss in OBJECTIVES:
            assert np.isfinite(one_token(loss, -200, -1, 1)).all()
            assert np.isfinite(one_token(loss, -200, -1, -1)).all()


KINDS = {"vanilla": Dapo(clip_low=0.2, clip_high=0.28), "ppo": Dapo(clip_low=0.2, clip_high=0.28), "cispo": Cispo(cap=1.28)}
KINDS["gspo"] = Gspo(clip_low=0.2, clip_high=0.28)
TOKEN_MEANS = ("/token-mean", "/token_mean", " ppo_token", " gspo_seq")
"""By these names the peers mean our token aggregation; by the others kept in the file, sample."""


@pytest.mark.parametrize("name", PEERS["losses"])
def test_the_peers_own_functions_give_the_same(name):
    """Their loss is minimised; GSPO's per-completion value stands at every token, as ours does.

    Their CISPO is given offsets (.2 below 1, .28 above) and raises weights to .8, which ours, bounded above only, does not:
    there the gradients differ by exactly that factor. SkyRL computes the loss in fp32, verl divides by a count + 1e-8.
    """
    given, expected = PEERS["input"], PEERS["losses"][name]
    loss = next(loss for kind, loss in KINDS.items() if kind in name)
    aggregation = Aggregation.family.select("token" if name.endswith(TOKEN_MEANS) else "sample")
    new, old, mask = np.array(given["new"]), np.array(given["old"]), np.array(given["mask"], dtype=np.bool_)
    advantages = np.array(given["adv_per_seq"])[:, None]
    weights = -aggregation.weights([mask.sum(-1)])[0][:, None] * np.ones(mask.shape)
    values, gradient = value_and_gradient(loss, new, old, advantages, mask, weights=weights)
    if isinstance(loss, Cispo):
        raised = np.maximum(0.8 / np.exp(new - old), 1.0)
        values, gradient = raised * values, raised * gradient
        assert 0 < np.count_nonzero(raised[mask] > 1.0) < mask.sum()
    assert (weights * values).sum() == pytest.approx(expected["loss"], rel=1e-6)
    np.testing.assert_allclose(gradient, expected["grad"], rtol=1e-7, atol=1e-8)
