"""The rule itself, on planted curves."""

from itertools import pairwise

import pytest

from scalerl.core.errors import UsageError
from scalerl.core.units import STEPS
from scalerl.curves.result import Status
from scalerl.live import StoppingRule
from scalerl.live.rule import is_due
from scalerl.records.curve import Curve
from tests.live.curves import reward

BUDGET = 60


def prospect(last, *, target, A=0.6, rule=None, **law):
    steps = range(1, last + 1)
    curve = Curve.of("run", STEPS, list(steps), [max(0.0, reward(step, A=A, **law)) for step in steps])
    return (rule or StoppingRule()).prospect(curve, budget=BUDGET, target=target)


def test_the_chance_is_that_of_one_new_evaluation_at_the_budget():
    at_median = prospect(50, target=reward(BUDGET, A=0.6, noise=0.0))
    assert 0.2 < at_median.chance < 0.8
    assert not at_median.stops
    assert at_median.forecast.compute == BUDGET
    low, high = at_median.forecast.low, at_median.forecast.high
    assert prospect(50, target=high).chance == pytest.approx(0.05, abs=0.01)
    assert prospect(50, target=low).chance == pytest.approx(0.95, abs=0.01)


def test_a_run_stops_when_its_chance_falls_below_alpha():
    edge = prospect(50, target=0.6)
    assert edge.answer.status is Status.OK
    assert not edge.answer.doubts
    high = edge.forecast.high  # reached with probability .05
    assert prospect(50, target=high, rule=StoppingRule(alpha=0.1)).stops
    assert not prospect(50, target=high, rule=StoppingRule(alpha=0.02)).stops


def test_where_the_ceiling_is_not_bounded_five_times_the_certainty_is_asked_for():
    early = prospect(12, target=0.9, C_mid=60.0)
    assert early.answer.status is Status.NOT_IDENTIFIED
    high = early.forecast.high
    unsure = prospect(12, target=high, C_mid=60.0, rule=StoppingRule(alpha=0.2))
    assert unsure.chance == pytest.approx(0.05, abs=0.01)
    assert not unsure.stops
    assert prospect(12, target=high, C_mid=60.0, rule=StoppingRule(alpha=0.3)).stops


def test_a_flat_run_stops_only_when_no_climb_would_come_in_time():
    early, late = (prospect(last, target=0.5, A=0.1) for last in (10, 50))
    assert (early.answer.status, late.answer.status) == (Status.FLAT, Status.FLAT)
    assert early.chance > 0.01
    assert (early.stops, late.stops) == (False, True)


def test_a_collapsed_run_is_not_judged():
    steps = list(range(1, 31))
    fallen = Curve.of("run", STEPS, steps, [reward(step, A=0.6) if step <= 18 else 0.05 for step in steps])
    judged = StoppingRule().prospect(fallen, budget=BUDGET, target=0.9)
    assert (judged.answer.status, judged.chance, judged.stops) == (Status.COLLAPSED, None, False)
    assert str(judged) == "pass rate after 30 steps: collapsed"


def test_few_points_say_nothing_and_no_target_stops_nothing():
    assert prospect(7, target=0.9) is None
    free = prospect(30, target=None)
    assert (free.chance, free.stops) == (None, False)
    assert free.forecast is not None


@pytest.mark.parametrize("target", [60.0, float("nan"), float("inf")])
def test_f3_a_target_that_no_reward_can_be_stops_nothing(target):
    with pytest.raises(UsageError, match=r"run: the reward to be reached, .*, is outside 0 .. 1; give targets and bounds in the unit"):
        prospect(20, target=target)


def test_a_budget_that_is_spent_is_judged_at_the_last_point():
    assert prospect(80, target=0.9).forecast.compute == 80


def test_a_line_says_all_of_it():
    line = str(prospect(50, target=0.9))
    assert line.startswith("pass rate after 50 steps: ceiling bounded, 0.")
    assert " (90% interval 0." in line
    assert line.endswith(" at 60 steps; reaches 0.900 there with probability 0.00: stop")


def test_a_run_of_many_points_is_judged_ever_more_rarely():
    due = [num_points for num_points in range(1, 10_001) if is_due(num_points)]
    assert due[:20] == list(range(1, 21))
    assert all(after <= 1.11 * before for before, after in pairwise(due[20:]))
    assert len(due) < 160
