"""Filters: which groups a batch trains on."""

from dataclasses import replace

import numpy as np
import pytest

from scalerl.curriculum.filters.overlong import Overlong
from scalerl.curriculum.filters.staleness import Staleness
from scalerl.curriculum.filters.zero_variance import ZeroVariance
from scalerl.records.rollout import Completion, Group, Outcome, Prompt, Score


def group(*values: float | None) -> Group:
    """A group whose completions got `values`; None where grading failed."""
    completion = Completion(
        index=0,
        token_ids=np.zeros(1, np.int32),
        log_probs=np.zeros(1, np.float32),
        trainable=np.ones(1, np.bool_),
        version_runs=((0, 1),),
        finished=True,
    )
    scores = [Score(None, None, Outcome.FAILED) if value is None else Score(value, value > 0.0) for value in values]
    prompt = Prompt(id="p", task="t", text="", token_ids=(1,), answer="")
    return Group(id=0, prompt=prompt, epoch=0, completions=(completion,) * len(values)).scored(scores)


@pytest.mark.parametrize(
    "values", [(0.0, 0.0), (1.0, 1.0, 1.0), (0.3, 0.3), (-1.0, None, -1.0), (1.0, None), (None, None), (0.5,)], ids=str
)
def test_a_group_of_equal_rewards_is_taken_out(values):
    """So is one with fewer than two graded completions: absence is no reward."""
    assert ZeroVariance().takes_out(group(*values), version=0)


@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 0.9, 1.0), (None, 0.0, 1.0), (-1.0, 1.0)], ids=str)
def test_a_group_with_a_difference_stays(values):
    assert not ZeroVariance().takes_out(group(*values), version=0)


def test_it_goes_by_the_value_not_by_whether_it_passed():
    """A length penalty makes two passes worth different things, and that is a gradient."""
    assert not ZeroVariance().takes_out(group(1.0, 0.5), version=0)


@pytest.mark.parametrize("finished", [True, False])
def test_an_overlong_completion_is_masked_and_its_group_stays(finished):
    members = group(1.0, 0.0)
    completion = replace(members.completions[0], finished=finished)
    assert Overlong().masks(completion) is not finished
    assert not Overlong().takes_out(members, version=0)


def test_what_is_masked_keeps_score_and_tokens():
    untrained = group(1.0, 0.0).completions[0].untrained()
    assert untrained.score is not None
    assert untrained.score.value == 1.0
    assert untrained.token_ids.size == 1
    assert not untrained.trainable.any()


@pytest.mark.parametrize(("version", "out"), [(2, False), (3, True)])
def test_staleness_goes_by_the_oldest_first_token(version, out):
    completion = replace(group(0.0).completions[0], version_runs=((1, 1),))
    members = replace(group(0.0, 1.0), completions=(completion, replace(completion, version_runs=((0, 1),))))
    assert Staleness(most_versions=2).takes_out(members, version=version) is out
