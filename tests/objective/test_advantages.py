"""Advantages: baseline and scale against arithmetic, failed gradings, and equal scores."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.core.errors import UsageError
from scalerl.objective.advantages import Advantage
from scalerl.objective.advantages.centred import Centred
from scalerl.objective.advantages.leave_one_out import LeaveOneOut
from scalerl.objective.advantages.raw import Raw

PEERS = json.loads((Path(__file__).parent / "peers.json").read_text())
GROUPED = ("centred", "leave_one_out")
SCALED = [(name, scale) for name in GROUPED for scale in ("none", "group", "batch")]
ALL = [*SCALED, ("raw", "none"), ("raw", "batch")]

scores = st.sampled_from([math.nan, -1.0, 0.0, 0.1, 0.5, 0.7, 1.0])
batches = st.lists(st.lists(scores, min_size=1, max_size=6).map(np.array), min_size=1, max_size=5)


def oracle(name: str, scale: str, values: list[np.ndarray]) -> list[list[float]]:
    """A_i completion by completion from the equations, with sums instead of array functions."""
    result = []
    for group in values:
        row = []
        for i, score in enumerate(group):
            others = [other for j, other in enumerate(group) if not math.isnan(other) and (name == "centred" or j != i)]
            baseline = 0.0 if name == "raw" else math.fsum(others) / len(others) if others else score
            row.append(score - baseline)
        result.append(row)

    def std(members: list[float]) -> float:
        scored = [member for member in members if not math.isnan(member)]
        mean = math.fsum(scored) / max(len(scored), 1)
        return math.sqrt(math.fsum((member - mean) ** 2 for member in scored) / max(len(scored), 1))

    of_batch = std([member for row in result for member in row])
    divisors = [{"none": 1.0, "group": std(row), "batch": of_batch}[scale] for row in result]
    # Equal scores leave rounding here, of which the std is no scale.
    return [[member / by if by > 1e-12 else member for member in row] for row, by in zip(result, divisors, strict=True)]


@pytest.mark.parametrize(("name", "scale"), ALL)
@given(values=batches)
def test_advantages_follow_from_the_equations(name, scale, values):
    """NaN stays NaN, and whoever has none is compared with those that have none either."""
    advantages = Advantage.family.select({"type": name, "scale": scale}).advantages(values)
    assert len(advantages) == len(values)
    for mine, expected in zip(advantages, oracle(name, scale, values), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "scale"), SCALED)
@given(values=batches, factor=st.integers(1, 64), shift=st.integers(-8, 8))
def test_scaled_advantages_do_not_know_the_unit_of_the_score(name, scale, values, factor, shift):
    """Nor its zero; unscaled ones are in that unit."""
    advantage = Advantage.family.select({"type": name, "scale": scale})
    in_other_units = advantage.advantages([factor * group + shift for group in values])
    for mine, before in zip(in_other_units, advantage.advantages(values), strict=True):
        np.testing.assert_allclose(mine, before * (factor if scale == "none" else 1.0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("scale", "first", "second"),
    [
        ("none", [0.75, -0.25, -0.25, -0.25], [0.25, 0.25, -0.25, -0.25]),
        ("group", [1.7320508, -0.5773503, -0.5773503, -0.5773503], [1.0, 1.0, -1.0, -1.0]),
        ("batch", [2.1213203, -0.7071068, -0.7071068, -0.7071068], [0.7071068, 0.7071068, -0.7071068, -0.7071068]),
    ],
)
def test_case_l6_the_batch_scale_is_the_batchs(scale, first, second):
    advantages = Centred(scale=scale).advantages([np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.5, 0.5, 0.0, 0.0])])
    np.testing.assert_allclose(advantages, [first, second], rtol=1e-6)


@pytest.mark.parametrize(("name", "scale"), SCALED)
@pytest.mark.parametrize("score", [0.1, 1.0 / 3.0, -0.7, 0.0])
def test_equal_scores_give_advantages_of_exactly_zero(name, scale, score):
    """A baseline that is off by 1e-17 would become an advantage of 1 once divided by its own std.

    Exactly: nothing is left of a prompt that cannot teach, whatever the optimizer divides by.
    """
    advantages = Advantage.family.select({"type": name, "scale": scale}).advantages([np.full(3, score), np.full(7, score)])
    assert [group.tolist() for group in advantages] == [[0.0] * 3, [0.0] * 7]


@pytest.mark.parametrize(("name", "scale"), ALL)
def test_a_failed_grading_leaves_baseline_and_scale(name, scale):
    """Absence is not zero: the others get what they would get without it."""
    advantage = Advantage.family.select({"type": name, "scale": scale})
    with_failure, alone, all_failed = advantage.advantages([np.array([1.0, np.nan, 0.0, 0.0]), np.array([0.5]), np.full(2, np.nan)])
    without, alone_without = advantage.advantages([np.array([1.0, 0.0, 0.0]), np.array([0.5])])
    assert np.isnan(with_failure[1])
    np.testing.assert_array_equal(np.delete(with_failure, 1), without)
    np.testing.assert_array_equal(alone, alone_without)
    assert (alone[0] == 0.0) == (name in GROUPED)
    assert np.isnan(all_failed).all()


def test_groups_of_any_size_are_compared_within_themselves():
    """Groups of 2, 3 and 1 by hand; the batch's std is over the 6 centred scores, whose mean is 0 whatever the sizes."""
    values = [np.array([1.0, 0.0]), np.array([1.0, 0.0, 0.5]), np.array([0.7])]
    centred = [[0.5, -0.5], [0.5, -0.5, 0.0], [0.0]]
    for mine, expected in zip(Centred(scale="none").advantages(values), centred, strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-15)
    std = math.sqrt(4 * 0.25 / 6)
    for mine, expected in zip(Centred(scale="batch").advantages(values), centred, strict=True):
        np.testing.assert_allclose(mine, np.array(expected) / std, atol=1e-15)
    for mine, expected in zip(LeaveOneOut(scale="none").advantages(values), [[1.0, -1.0], [0.75, -0.75, 0.0], [0.0]], strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-15)


def test_without_a_baseline_a_score_is_its_own_advantage():
    values = [np.array([1.0]), np.array([0.0, np.nan, 2.0])]
    np.testing.assert_array_equal(np.concatenate(Raw().advantages(values)), [1.0, 0.0, np.nan, 2.0])
    np.testing.assert_allclose(np.concatenate(Raw(scale="batch").advantages(values)), np.array([1, 0, np.nan, 2]) / math.sqrt(2 / 3))


@pytest.mark.parametrize("score", [0.1, -0.7])
def test_equal_scores_without_a_baseline_stay_what_they_are(score):
    """Their std is 0 and not its rounding, which would make 7e15 of .1."""
    assert [group.tolist() for group in Raw(scale="batch").advantages([np.full(3, score), np.full(7, score)])] == [[score] * 3, [score] * 7]


def test_a_baseline_out_of_the_group_needs_two():
    assert {name: component.least_group for name, component in Advantage.family.classes().items() if name in (*GROUPED, "raw")} == {
        "centred": 2,
        "leave_one_out": 2,
        "raw": 1,
    }


def test_the_batch_is_the_scale_unless_there_is_no_baseline():
    assert (Centred().scale, LeaveOneOut().scale, Raw().scale) == ("batch", "batch", "none")


def test_no_baseline_has_no_group_to_scale_by():
    with pytest.raises(UsageError, match="its scale cannot be used"):
        Advantage.family.select({"type": "raw", "scale": "group"})


@pytest.mark.parametrize(("name", "scale"), ALL)
def test_a_batch_filtered_to_nothing_has_no_advantages(name, scale):
    assert Advantage.family.select({"type": name, "scale": scale}).advantages([]) == []


def test_the_scores_that_come_in_are_left_alone():
    scores = np.array([1.0, 0.0])
    Centred().advantages([scores])
    assert scores.tolist() == [1.0, 0.0]


def test_the_peers_own_functions_give_the_same():
    """verl and SkyRL divide by the sample std (ddof 1) + 1e-6; ours is the population's: sqrt(G / (G - 1)) apart, G = 2 here."""
    given, expected = PEERS["input"], PEERS["advantages"]
    values = [np.array(given["rewards"])[np.array(given["group_index"]) == group] for group in (0, 1)]
    by_group = np.concatenate(Centred(scale="group").advantages(values)) / math.sqrt(2.0)
    np.testing.assert_allclose(by_group, expected["verl grpo_adv/norm_std=True"], rtol=2e-6)
    np.testing.assert_allclose(by_group, expected["skyrl grpo_adv"], rtol=2e-6)
    np.testing.assert_array_equal(np.concatenate(Centred(scale="none").advantages(values)), expected["verl grpo_adv/norm_std=False"])
    np.testing.assert_array_equal(np.concatenate(LeaveOneOut(scale="none").advantages(values)), expected["verl rloo_adv"])
