"""Losses: value and gradient of each against its equation, and what must never leak or overflow."""

import json
import math
from operator import methodcaller
from pathlib import Path

import numpy as np
import pytest
import torch

from scalerl.core.errors import UsageError
from scalerl.objective.aggregations import Aggregation
from scalerl.objective.aggregations.constant import Constant
from scalerl.objective.losses import Loss
from scalerl.objective.losses.cispo import Cispo
from scalerl.objective.losses.dapo import Dapo
from scalerl.objective.losses.dr_grpo import DrGrpo
from scalerl.objective.losses.grpo import Grpo
from scalerl.objective.losses.gspo import Gspo
from scalerl.objective.losses.masked import Masked
from scalerl.objective.losses.ppo import Ppo
from scalerl.objective.losses.reinforce import Reinforce
from scalerl.objective.losses.truncated import Truncated
from scalerl.objective.terms.kl import Kl
from tests.objective.oracle import OBJECTIVES, central_differences, label, objective, ppo, value_and_gradient

PEERS = json.loads((Path(__file__).parent / "peers.json").read_text())
ALL = [pytest.param(loss, id=label(loss)) for loss in OBJECTIVES]
BOUNDED = [pytest.param(loss, id=label(loss)) for loss in OBJECTIVES if loss != Reinforce()]
CLIPPED_RATIOS = (Dapo(), DrGrpo(), Grpo(), Gspo(), Ppo())


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
@pytest.mark.parametrize("of", ["completions", "tokens"])
def test_value_and_gradient_follow_from_the_equation(loss, seed, of):
    """With one advantage per completion, (N, 1), and with one per token, (N, T), as a critic gives."""
    new, old, advantages, mask, weights = drawn(seed)
    if of == "tokens":
        advantages = np.random.default_rng(seed + 100).normal(0.0, 1.0, mask.shape)
    values, gradient = value_and_gradient(loss, new, old, advantages, mask, weights=weights)
    np.testing.assert_allclose(values, objective(loss, new, old, advantages, mask, at=new), rtol=1e-12, atol=1e-15)
    expected = central_differences(lambda moved: float((weights * objective(loss, moved, old, advantages, mask, at=new)).sum()), new)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", ALL)
def test_one_advantage_per_completion_is_that_of_each_of_its_tokens(loss):
    new, old, advantages, mask, weights = drawn(3)
    spread = advantages * np.ones(mask.shape)
    for one, each in zip(*(value_and_gradient(loss, new, old, a, mask, weights=weights) for a in (advantages, spread)), strict=True):
        np.testing.assert_array_equal(one, each)
    constants = [torch.tensor(array) for array in (new, old, mask)]
    marked = [loss.clipped(*constants[:2], torch.tensor(a), constants[2]) for a in (advantages, spread)]
    assert torch.equal(*marked)


def test_an_advantage_where_nothing_was_sampled_may_be_rubbish():
    """A critic has no value for padding; NaN there reaches neither value nor gradient."""
    for loss in OBJECTIVES:
        new, old, _, mask, weights = drawn(1)
        advantages = np.random.default_rng(7).normal(0.0, 1.0, mask.shape)
        clean = value_and_gradient(loss, new, old, advantages, mask, weights=weights)
        dirty = value_and_gradient(loss, new, old, np.where(mask, advantages, np.nan), mask, weights=weights)
        assert all((one == other).all() for one, other in zip(clean, dirty, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_gspo_is_the_clipped_objective_of_the_completions_ratio(seed):
    """With one advantage and one weight per completion: arXiv 2507.18071, eq. 5, whose gradient the token form must have."""
    new, old, advantages, mask, _ = drawn(seed)
    weights = np.random.default_rng(seed).random((len(mask), 1))

    def whole(moved: np.ndarray) -> float:
        means = (np.where(mask, moved - old, 0.0).sum(1) / np.maximum(mask.sum(1), 1)).tolist()
        rows = zip(means, advantages[:, 0].tolist(), (weights[:, 0] * mask.sum(1)).tolist(), strict=True)
        return sum(weight * ppo(math.exp(mean), advantage, 0.05, 0.08) for mean, advantage, weight in rows)

    loss = Gspo(clip_low=0.05, clip_high=0.08)
    values, gradient = value_and_gradient(loss, new, old, advantages, mask, weights=weights * np.ones(mask.shape))
    assert (weights * values).sum() == pytest.approx(whole(new), rel=1e-12)
    np.testing.assert_allclose(gradient, central_differences(whole, new), rtol=1e-6, atol=1e-8)


def test_gspo_lets_each_token_follow_its_own_advantage():
    """Ratio 1, advantages +1 and -1: the tokens are pulled apart, where the gradient of s_i itself would be 0 for both."""
    new = np.array([[-1.0, -2.0]])
    _, gradient = value_and_gradient(Gspo(), new, new, np.array([[1.0, -1.0]]), np.ones((1, 2), np.bool_), weights=np.ones((1, 2)))
    assert gradient.tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("loss", ALL)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_half_precision_is_widened_before_the_ratio(loss, dtype):
    """What comes in as bf16 or fp16 gives what the same numbers give in fp32, to the bit, in value, gradient and marks."""
    new, old, advantages, mask, _ = drawn(2)
    narrow = [torch.tensor(array, dtype=dtype) for array in (new, old, advantages)]
    results = []
    for inputs in (narrow, [tensor.float() for tensor in narrow]):
        log_probs = inputs[0].clone().requires_grad_()
        values = loss.objective(log_probs, inputs[1], inputs[2], torch.tensor(mask))
        (gradient,) = torch.autograd.grad(values.sum(), log_probs)
        results.append((values, gradient.to(dtype), loss.clipped(*inputs, torch.tensor(mask))))
        assert values.dtype == torch.float32
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_a_cap_that_fp16_cannot_hold_is_kept():
    """exp(12) is infinite in fp16."""
    new, old = torch.tensor([[-1.0]], dtype=torch.float16), torch.tensor([[-13.0]], dtype=torch.float16)
    objective = Cispo(cap=1e6).objective(new, old, torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool))
    assert objective.item() == pytest.approx(-math.exp(12.0), rel=1e-6)


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


@pytest.mark.parametrize("loss", BOUNDED)
@pytest.mark.parametrize("seed", range(4))
def test_clipped_tokens_are_those_that_a_bound_holds_back(loss, seed):
    """Where there is a cap: own tokens that weigh it; else own tokens without gradient."""
    new, old, advantages, mask, _ = drawn(seed)
    _, gradient = value_and_gradient(loss, new, old, advantages, mask, weights=np.ones(mask.shape))
    held = np.isclose(gradient, loss.cap * advantages) if isinstance(loss, (Cispo, Truncated)) else gradient == 0.0
    marked = loss.clipped(*(torch.tensor(array) for array in (new, old, advantages, mask))).numpy()
    assert (marked == (mask & held)).all()
    assert 0 < marked.sum() < mask.sum()


def test_reinforce_clips_nothing():
    new, old, advantages, mask, _ = drawn(0)
    assert not Reinforce().clipped(*(torch.tensor(array) for array in (new, old, advantages, mask))).any()


def test_truncated_tokens_are_cispo():
    new, old, advantages, mask, weights = drawn(5)
    for one, other in zip(
        *(value_and_gradient(loss, new, old, advantages, mask, weights=weights) for loss in (Truncated(cap=1.3), Cispo(cap=1.3))),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_dr_grpo_and_ppo_without_a_second_bound_are_grpo_token_by_token():
    new, old, advantages, mask, weights = drawn(5)
    expected = value_and_gradient(Grpo(clip=0.1), new, old, advantages, mask, weights=weights)
    for loss in (DrGrpo(clip=0.1), Ppo(clip=0.1)):
        for one, other in zip(value_and_gradient(loss, new, old, advantages, mask, weights=weights), expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("advantage", "log_ratio", "value", "gradient"), [(-1, 2.0, 3.0, 0.0), (-1, 1.0, math.e, math.e), (1, 2.0, -1.2, 0.0), (0, 2.0, 0, 0)]
)
def test_a_dual_clip_floors_what_a_bad_token_costs(advantage, log_ratio, value, gradient):
    """arXiv 1912.09729, eq. 5, c = 3: for A < 0 the ratio counts as 3 at most; elsewhere the clip is untouched."""
    for loss in (Ppo(dual_clip=3.0), Dapo(clip_high=0.2, dual_clip=3.0)):
        assert one_token(loss, log_ratio - 2.0, -2.0, advantage) == pytest.approx((value, gradient), rel=1e-6)
        assert clipped(loss, log_ratio - 2.0, -2.0, advantage) == (gradient == 0.0 and advantage != 0)


@pytest.mark.parametrize(
    ("loss", "weights"),
    [
        pytest.param(Masked(), [0.0, 0.5, 5.0, 0.0], id="IcePop"),
        pytest.param(Truncated(), [0.25, 0.5, 2.0, 2.0], id="TIS"),
        pytest.param(Truncated(level="sequence", cap=5.0), [5.0] * 4, id="of completions"),
        pytest.param(Truncated(level="sequence", cap=9.0), [6.25] * 4, id="of completions below the cap"),
        pytest.param(Masked(level="sequence", low=0.0, high=5.0), [0.0] * 4, id="MIS"),
        pytest.param(Masked(level="sequence", low=0.0, high=6.3), [6.25] * 4, id="MIS within bounds"),
        pytest.param(Masked(level="geometric", low=0.5, high=1.6), [6.25**0.25] * 4, id="Geo-MIS within bounds"),
        pytest.param(Masked(level="geometric", low=0.99, high=1.01), [0.0] * 4, id="Geo-MIS"),
    ],
)
def test_importance_weights_by_hand(loss, weights):
    """Ratios 1/4, 1/2, 5, 10, bounds included: the product is 6.25."""
    ratios = np.array([[0.25, 0.5, 5.0, 10.0]]) * (1.0 + 1e-15 * np.array([0, 1, -1, 0]))
    new, mask = np.log(ratios), np.ones((1, 4), np.bool_)
    _, gradient = value_and_gradient(loss, new, np.zeros((1, 4)), np.full((1, 1), 2.0), mask, weights=np.ones((1, 4)))
    np.testing.assert_allclose(gradient, [2.0 * np.array(weights)], rtol=1e-12)


@pytest.mark.parametrize(
    "loss", [Cispo(cap=1.0), Truncated(cap=1.0), Masked(low=1.0, high=2.0), Masked(low=0.0, high=1.0), Grpo(clip=0.0)], ids=label
)
@pytest.mark.parametrize("advantage", [1, -1])
def test_a_ratio_on_a_bound_is_within_it(loss, advantage):
    assert one_token(loss, -2.0, -2.0, advantage)[1] == -advantage
    assert not clipped(loss, -2.0, -2.0, advantage)


@pytest.mark.parametrize("of", [Ppo, Dapo])
def test_a_ratio_on_the_dual_clip_is_not_beyond_it(of):
    """As torch has exp(1) in fp32: only what is larger than the bound is cut down to it."""
    on_it = torch.tensor(1.0).exp().item()
    assert not clipped(of(dual_clip=on_it), -1.0, -2.0, -1.0)
    assert clipped(of(dual_clip=on_it * (1.0 - 1e-6)), -1.0, -2.0, -1.0)


def test_a_completion_is_one_weight_whatever_stands_beside_its_own_tokens():
    """Sums run over own tokens only, and the mean divides by their number."""
    new, old = np.log([[2.0, 7.0, 0.9]]), np.zeros((1, 3))
    mask = np.array([[True, False, True]])
    for loss, weight in ((Truncated(level="sequence", cap=9.0), 1.8), (Masked(level="geometric"), math.sqrt(1.8))):
        _, gradient = value_and_gradient(loss, new, old, np.ones((1, 1)), mask, weights=np.ones((1, 3)))
        np.testing.assert_allclose(gradient, [[weight, 0.0, weight]], rtol=1e-12)


@pytest.mark.parametrize(
    "selection",
    [
        {"type": "cispo", "cap": 0.5},
        {"type": "truncated", "level": "token", "cap": 0.5},
        {"type": "masked", "level": "geometric", "low": 0.0, "high": 0.5},
        {"type": "dapo", "clip_low": 1.0, "clip_high": 0.0},
        {"type": "dapo", "clip_low": 0.0, "clip_high": 2.0},
        {"type": "grpo", "clip": 0.0},
        {"type": "grpo", "clip": 1.0},
        {"type": "gspo", "clip_low": 1.0, "clip_high": 0.0},
        {"type": "gspo", "clip_low": 0.0, "clip_high": 2.0},
        {"type": "ppo", "clip": 0.0, "dual_clip": 1.05},
        {"type": "ppo", "clip": 1.0},
    ],
)
def test_the_edges_of_what_can_be_set(selection):
    assert Loss.family.select(selection).selection() == selection


def test_the_defaults_are_the_papers():
    """arXiv 2510.13786 for CISPO, DAPO and GSPO; IcePop's bounds; what TIS is used with."""
    settings = {loss.name(): loss.model_dump() for loss in (Cispo(), Dapo(), DrGrpo(), Grpo(), Gspo(), Masked(), Ppo(), Truncated())}
    assert settings == {
        "cispo": {"cap": 5.0},
        "dapo": {"clip_low": 0.2, "clip_high": 0.26, "dual_clip": None},
        "dr_grpo": {"clip": 0.2},
        "grpo": {"clip": 0.2},
        "gspo": {"clip_low": 3e-3, "clip_high": 5e-3},
        "masked": {"level": "token", "low": 0.5, "high": 5.0},
        "ppo": {"clip": 0.2, "dual_clip": None},
        "truncated": {"level": "token", "cap": 2.0},
    }


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        ({"type": "ppo", "clip": -0.1}, "its clip cannot be used"),
        ({"type": "ppo", "clip": 1.1}, "its clip cannot be used"),
        ({"type": "ppo", "dual_clip": 1.0}, "its dual_clip cannot be used"),
        ({"type": "truncated", "level": "geometric"}, "its level cannot be used"),
        ({"type": "truncated", "cap": 0.0}, "its cap cannot be used"),
        ({"type": "masked", "low": -0.1}, "its low cannot be used"),
        ({"type": "masked", "low": 0.0, "high": 0.0}, "its high cannot be used"),
        ({"type": "masked", "low": 2.0, "high": 2.0}, r"low 2.0 must lie below high 2.0: nothing would be trained on"),
        ({"type": "cispo", "cap": 0.0}, "its cap cannot be used"),
        ({"type": "dapo", "clip_low": -0.1}, "its clip_low cannot be used"),
        ({"type": "dapo", "clip_low": 1.1}, "its clip_low cannot be used"),
        ({"type": "dapo", "clip_high": -0.1}, "its clip_high cannot be used"),
        ({"type": "dapo", "dual_clip": 1.0}, "its dual_clip cannot be used"),
        ({"type": "grpo", "clip": -0.1}, "its clip cannot be used"),
        ({"type": "grpo", "clip": 1.1}, "its clip cannot be used"),
        ({"type": "gspo", "clip_low": -0.1}, "its clip_low cannot be used"),
        ({"type": "gspo", "clip_low": 1.1}, "its clip_low cannot be used"),
        ({"type": "gspo", "clip_high": -0.1}, "its clip_high cannot be used"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(selection, reason):
    with pytest.raises(UsageError, match=reason):
        Loss.family.select(selection)


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

    @pytest.mark.parametrize("loss", CLIPPED_RATIOS, ids=methodcaller("name"))
    def test_u2_a_large_ratio_with_a_negative_advantage_is_cut_and_counts_as_clipped(self, loss):
        assert one_token(loss, -1, -101, -1) == pytest.approx((math.exp(20.0), 0.0))
        assert clipped(loss, -1, -101, -1)
        assert not clipped(loss, -1, -21, -1), "up to the cut the equation leaves it unbounded"
        assert one_token(loss, -1, -21, -1) == pytest.approx((math.exp(20.0), math.exp(20.0)))
        assert not clipped(loss, -1, -101, 0), "there is nothing to hold back"

    def test_u2_with_a_dual_clip_meets_it(self):
        assert one_token(Ppo(dual_clip=3.0), -1, -101, -1) == pytest.approx((3.0, 0.0))
        assert clipped(Ppo(dual_clip=3.0), -1, -101, -1)

    @pytest.mark.parametrize("loss", [Cispo(), Truncated(cap=5.0), Truncated(level="sequence", cap=5.0)], ids=label)
    def test_u2_with_a_capped_weight_weighs_the_cap(self, loss):
        assert one_token(loss, -1, -101, -1) == pytest.approx((-5.0, 5.0))
        assert clipped(loss, -1, -101, -1)

    @pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
    def test_u1_and_u2_beyond_a_mask_are_left_out(self, level):
        loss = Masked(level=level)
        for advantage in (1, -1):
            assert one_token(loss, -1, -101, advantage) == (0.0, 0.0)
            assert clipped(loss, -1, -101, advantage)

    @pytest.mark.parametrize("loss", [Truncated(level="sequence"), Masked(level="sequence")], ids=label)
    def test_u3_a_product_is_summed_before_the_exponential(self, loss):
        """A thousand tokens of log-ratio 1 overflow, and +100 beside -100 is a ratio of 1."""
        long = value_and_gradient(
            loss, *np.stack([np.zeros((1, 1000)), -np.ones((1, 1000))]), np.ones((1, 1)), np.ones((1, 1000), np.bool_),
            weights=np.ones((1, 1000)), dtype=torch.float32,
        )  # fmt: skip
        assert np.isfinite(long).all()
        assert set(long[1][0].tolist()) == {2.0 if isinstance(loss, Truncated) else 0.0}
        _, gradient = value_and_gradient(
            loss, np.array([[-1.0, -101.0]]), np.array([[-101.0, -1.0]]), np.ones((1, 1)), np.ones((1, 2), np.bool_),
            weights=np.ones((1, 2)), dtype=torch.float32,
        )  # fmt: skip
        assert gradient.tolist() == [[1.0, 1.0]]

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

    @pytest.mark.parametrize("loss", OBJECTIVES, ids=label)
    def test_u4_masked_tokens_are_not_there(self, loss):
        """-1 at a ratio of 1 for clipped ratios; for those that weigh log pi, -log pi."""
        value = -1.0 if isinstance(loss, tuple(map(type, CLIPPED_RATIOS))) else 1.0
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


CLIP = {"clip_low": 0.2, "clip_high": 0.28}
KINDS = {"vanilla": Dapo(**CLIP), "ppo": Dapo(**CLIP), "cispo": Cispo(cap=1.28), "gspo": Gspo(**CLIP)}
AGGREGATIONS = {
    "token": ("token-mean", "token_mean", "openrlhf ppo_token", "areal ppo_token", "areal gspo_seq"),
    "sample": ("seq-mean-token-mean", "sequence_mean", "openrlhf ppo_seq", "openrlhf gspo"),
    ("constant", 6): ("seq-mean-token-sum-norm", "seq_mean_token_sum_norm"),
    ("constant", 1): ("seq-mean-token-sum", "token-sum"),
}
"""Our aggregation, with the length that it divides by, and what the peers call it."""


@pytest.fixture
def peers():
    """The peers' common input: log-probs new, old and rollout, advantages (N, 1) and mask."""
    given = PEERS["input"]
    arrays = {key: np.array(given[key]) for key in ("new", "old", "rollout")}
    return arrays | {"advantages": np.array(given["adv_per_seq"])[:, None], "mask": np.array(given["mask"], np.bool_)}


def spread(name: str, mask: np.ndarray) -> np.ndarray:
    """Each token's weight in a loss to be minimised, (N, T), by the peers' name for it, all completions being one group."""
    selection = next(ours for ours, theirs in AGGREGATIONS.items() if name in theirs)
    aggregation = Constant(tokens=selection[1]) if isinstance(selection, tuple) else Aggregation.family.select(selection)
    weights = -aggregation.weights([mask.sum(-1)])[0][:, None] * np.ones(mask.shape)
    # A plain sum lacks the division by the number of completions.
    return len(mask) * weights if name == "token-sum" else weights


@pytest.mark.parametrize("name", PEERS["losses"])
def test_the_peers_own_functions_give_the_same(name, peers):
    """Their loss is minimised; GSPO's per-completion value stands at every token, as ours does.

    Their CISPO is given offsets (.2 below 1, .28 above) and raises weights to .8, which ours, bounded above only, does not:
    there the gradients differ by exactly that factor. SkyRL computes the loss in fp32, verl divides by a count + 1e-8.
    """
    expected = PEERS["losses"][name]
    loss = next(loss for kind, loss in KINDS.items() if kind in name)
    new, old, mask = peers["new"], peers["old"], peers["mask"]
    weights = spread(name.split("/")[-1], mask)
    values, gradient = value_and_gradient(loss, new, old, peers["advantages"], mask, weights=weights)
    if isinstance(loss, Cispo):
        raised = np.maximum(0.8 / np.exp(new - old), 1.0)
        values, gradient = raised * values, raised * gradient
        assert 0 < np.count_nonzero(raised[mask] > 1.0) < mask.sum()
    assert (weights * values).sum() == pytest.approx(expected["loss"], rel=1e-6)
    np.testing.assert_allclose(gradient, expected["grad"], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", PEERS["dual_clipped"])
def test_the_peers_dual_clip_is_ours(name, peers):
    """The ratios of this input never reach 3 where A < 0: that nothing else changes is what is seen."""
    weights = spread("token-mean", peers["mask"])
    loss = Dapo(**CLIP, dual_clip=3.0)
    values, gradient = value_and_gradient(loss, peers["new"], peers["old"], peers["advantages"], peers["mask"], weights=weights)
    expected = PEERS["dual_clipped"][name]
    assert (weights * values).sum() == pytest.approx(expected["loss"], rel=1e-6)
    np.testing.assert_allclose(gradient, expected["grad"], rtol=1e-7, atol=1e-8)


def test_where_it_binds_our_dual_clip_is_verls():
    """verl 0.9.1, core_algos.py:1338-1361, written out; every bound binds on this input, and ratios of 3 to 8 meet the dual clip."""
    low, high, dual = 0.2, 0.28, 3.0
    ratios, advantages = np.array([[0.1, 0.79, 0.9, 1.2, 1.3, 2.9, 3.1, 8.0]] * 2), np.array([[0.7], [-0.4]])
    cost, clipped_cost = -advantages * ratios, -advantages * np.clip(ratios, 1.0 - low, 1.0 + high)
    upper = np.maximum(cost, clipped_cost)
    expected = np.where(advantages < 0.0, np.minimum(-advantages * dual, upper), upper)
    moving = (upper == cost) & ((advantages > 0.0) | (ratios < dual))
    loss, old = Dapo(clip_low=low, clip_high=high, dual_clip=dual), np.zeros(ratios.shape)
    values, gradient = value_and_gradient(loss, np.log(ratios), old, advantages, np.ones(ratios.shape, np.bool_), weights=old - 1.0)
    np.testing.assert_allclose(-values, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, np.where(moving, cost, 0.0), rtol=1e-12)
    assert expected[1].tolist() == pytest.approx([0.32, 0.32, 0.36, 0.48, 0.52, 1.16, 1.2, 1.2])


TRLS = {
    "grpo": (Dapo(**CLIP), "sequence_mean"),
    "dapo": (Dapo(**CLIP), "token-mean"),
    "dr_grpo": (Dapo(**CLIP), "seq-mean-token-sum-norm"),
    "cispo": (Cispo(cap=1.28), "token-mean"),
    "grpo/sequence": (Gspo(**CLIP), "sequence_mean"),
    "dapo/delta": (Ppo(clip=0.05, dual_clip=1.1), "token-mean"),
    "dapo/beta": (Dapo(**CLIP), "token-mean"),
}
"""TRL's configurations (`trl_values.py`) in our words: the loss, and a peer's name of the aggregation."""


@pytest.mark.parametrize("name", TRLS)
def test_trls_own_trainer_gives_the_same(name, peers):
    """Its epsilons are offsets, but the absolute 1.28 of CISPO; `delta` is a dual clip; `beta` adds k3 towards `rollout`."""
    new, mask = torch.tensor(peers["new"], requires_grad=True), torch.tensor(peers["mask"])
    loss, aggregation = TRLS[name]
    objective = loss.objective(new, torch.tensor(peers["old"]), torch.tensor(peers["advantages"]), mask)
    if "beta" in name:
        objective = objective + Kl(coefficient=0.1).objective(new, new, torch.tensor(peers["rollout"]), None, mask)
    total = (torch.tensor(spread(aggregation, peers["mask"])) * objective).sum()
    (gradient,) = torch.autograd.grad(total, new)
    assert total.item() == pytest.approx(PEERS["trl"][name]["loss"], rel=1e-9)
    np.testing.assert_allclose(gradient, PEERS["trl"][name]["grad"], rtol=1e-9, atol=1e-12)


def test_trls_corrected_kl_has_the_gradient_of_k2_times_the_ratio(peers):
    """rho k3, differentiated through rho (DeepSeek-V3.2; TRL's default): rho k3 + rho (1 - exp(d)) = -rho d, where k2 has -d."""
    new, mask = torch.tensor(peers["new"], requires_grad=True), torch.tensor(peers["mask"])
    k2 = Kl(coefficient=0.1, estimator="k2").objective(new, new, torch.tensor(peers["rollout"]), None, mask)
    (gradient,) = torch.autograd.grad((torch.tensor(spread("token-mean", peers["mask"])) * k2).sum(), new)
    of_kl = np.array(PEERS["trl"]["dapo/beta/corrected"]["grad"]) - np.array(PEERS["trl"]["dapo"]["grad"])
    np.testing.assert_allclose(of_kl, np.exp(peers["new"] - peers["old"]) * gradient.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # They are TRL's own.
def test_trls_own_trainer_still_gives_what_was_written_down():
    pytest.importorskip("trl")
    from tests.objective.trl_values import values

    for name, computed in values().items():
        assert computed["loss"] == pytest.approx(PEERS["trl"][name]["loss"], rel=1e-9)
        np.testing.assert_allclose(computed["grad"], PEERS["trl"][name]["grad"], rtol=1e-9, atol=1e-12)


CORRECTED = {
    "verl vanilla+tis2/token-mean": Truncated(cap=2.0),
    "openrlhf ppo_token+tis_clip(0.5,2)": Truncated(cap=2.0),
    "openrlhf icepop_mask(0.5,5)": Masked(low=0.5, high=5.0),
}


@pytest.mark.parametrize("name", PEERS["corrected"])
def test_the_peers_corrections_are_our_weights_times_their_proximal_ratio(name, peers):
    """They weigh the clipped objective of pi / pi_old by pi_old / pi_gen. We have pi = pi_old, and so its weight alone.

    Taken at pi_old our gradient is weight x A; theirs is that times what the clipped ratio adds. At pi = pi_old both agree.
    No weight of this input is outside of [.5, 2], so that OpenRLHF's lower bound of .5 does not show.
    """
    old, mask, advantages = peers["old"], peers["mask"], peers["advantages"]
    weights = spread("token-mean", mask)
    clipped_values, clipped_gradient = value_and_gradient(Dapo(**CLIP), peers["new"], old, advantages, mask, weights=weights)
    _, ours = value_and_gradient(CORRECTED[name], old, peers["rollout"], advantages, mask, weights=np.ones(mask.shape))
    importance = ours / advantages
    expected = PEERS["corrected"][name]
    np.testing.assert_allclose(importance * clipped_gradient, expected["grad"], rtol=1e-7, atol=1e-8)
    assert (weights * importance * clipped_values).sum() == pytest.approx(expected["loss"], rel=1e-6)
    assert len(np.unique(importance[mask])) > 5
