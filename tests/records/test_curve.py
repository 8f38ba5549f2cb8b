"""Curves: what is not a curve is refused with its name, what is one is sorted and cannot be changed."""

import numpy as np
import pytest

from scalerl.core.errors import DataError
from scalerl.core.units import DEVICE_HOURS
from scalerl.records.curve import Curve
from scalerl.records.rollout import Completion, Group, Outcome, Prompt, Score


def test_points_are_sorted_by_compute_and_repeated_ones_kept():
    curve = Curve.of("run", DEVICE_HOURS, [3, 1, 1], [0.5, 0.2, 0.3], trials=[30, 10, 20])
    assert curve.compute.tolist() == [1.0, 1.0, 3.0]
    assert curve.reward.tolist() == [0.2, 0.3, 0.5]
    assert curve.trials.tolist() == [10.0, 20.0, 30.0]
    assert len(curve) == 3


def test_a_curve_does_not_change_with_what_it_was_made_of():
    compute = np.array([1.0, 2.0])
    curve = Curve.of("run", DEVICE_HOURS, compute, [0.1, 0.2])
    compute[0] = 9.0
    assert curve.compute[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        curve.reward[0] = 0.5


def test_a_window_keeps_the_points_inside_and_everything_else():
    curve = Curve.of("run", DEVICE_HOURS, [0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4], trials=[1, 2, 3, 4], notes=("note",))
    window = curve.window(1, 2)
    assert (window.compute.tolist(), window.reward.tolist(), window.trials.tolist()) == ([1, 2], [0.2, 0.3], [2, 3])
    assert window.notes == ("note",)


@pytest.mark.parametrize(
    ("compute", "reward", "options", "sentence"),
    [
        ([1, 2], [0.1], {}, "log.csv .run.: 2 amounts of compute for 1 values"),
        ([1], [0.1], {"trials": [1, 2]}, "1 amounts of compute for 2 values"),
        ([-1], [0.1], {}, "compute is negative"),
        ([1], [np.nan], {}, "pass rate holds something else than finite numbers"),
        ([np.inf], [0.1], {}, "compute holds something else"),
        ([1e-60, 1e60], [0.1, 0.2], {}, r"compute spans 1e-60 \.\. 1e\+60, as no run does"),
        ([1e300], [0.1], {}, "as no run does"),
        (["a"], [0.1], {}, "compute is not a column of numbers"),
        ([[1]], [0.1], {}, "compute holds something else"),
        ([1], [1.5], {}, r"rewards span 1\.5 \.\. 1\.5, outside 0 \.\. 1; give the least and the largest"),
        ([1], [0.1], {"trials": [0]}, "a point has no graded completions"),
        ([1], [0.1], {"bounds": (1.0, 0.0)}, "leave no room for a reward"),
    ],
)
def test_what_is_no_curve_is_refused(compute, reward, options, sentence):
    with pytest.raises(DataError, match=sentence):
        Curve.of("run", DEVICE_HOURS, compute, reward, source="log.csv", **options)


def test_other_bounds_admit_other_rewards():
    assert Curve.of("run", DEVICE_HOURS, [1], [70.0], bounds=(0.0, 100.0)).reward.tolist() == [70.0]


def test_only_a_failed_grading_has_no_value():
    assert Score(None, None, Outcome.FAILED).value is None
    assert Score(0.0, False, Outcome.CUT_OFF).value == 0.0
    for wrong in [(None, None, Outcome.GRADED), (0.0, False, Outcome.FAILED), (0.0, None, Outcome.GRADED)]:
        with pytest.raises(AssertionError, match="a failed grading, and only that, has no value"):
            Score(*wrong)


def test_the_age_of_a_group_is_that_of_its_oldest_first_token():
    def completion(*version_runs):
        ids = np.ones(10, dtype=np.int32)
        return Completion(0, ids, ids.astype(np.float32), ids.astype(bool), version_runs, finished=True)

    prompt = Prompt("p", "chain", "1+1:", (1, 2), "2")
    group = Group(0, prompt, 0, (completion((5, 10)), completion((3, 4), (5, 6))))
    assert group.age(8) == 5


@pytest.mark.parametrize(
    ("ids", "log_probs"),
    [
        pytest.param([], [-0.5, -1.5], id="B: log-probs without ids"),
        pytest.param([3], [-0.5, -1.5], id="B: text encoded again"),
        pytest.param([1, 2, 4], [-0.5, -1.5], id="C: three ids for two log-probs"),
    ],
)
def test_m4_tokens_that_are_not_those_of_the_log_probs_make_no_completion(ids, log_probs):
    with pytest.raises(ValueError, match="tokens do not go with"):
        Completion(
            index=0,
            token_ids=np.array(ids, np.int32),
            log_probs=np.array(log_probs, np.float32),
            trainable=np.ones(len(ids), np.bool_),
            version_runs=((0, len(ids)),),
            finished=True,
        )


def test_m4_a_completion_trains_on_its_sampled_ids():
    completion = Completion(
        index=0,
        token_ids=np.array([1, 2], np.int32),
        log_probs=np.array([-0.5, -1.5], np.float32),
        trainable=np.ones(2, np.bool_),
        version_runs=((0, 2),),
        finished=True,
        text="input",
    )
    assert completion.token_ids.tolist() == [1, 2]
    assert completion.log_probs.sum() == -2.0
