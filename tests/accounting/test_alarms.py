"""Alarms: over a window, once per excursion, warn or stop by setting, and the same after a resume."""

import pytest
from pydantic import ValidationError

from scalerl.accounting.alarms import AlarmFold, Alarms
from scalerl.accounting.metrics import MetricsRow


def row(step, *, truncated=0.0, failed=0.0, **measured):
    blank = dict.fromkeys(("num_trained", "num_filtered", "num_dropped", "num_failed_groups", "num_cancelled"), 0)
    return MetricsRow(
        step=step,
        version=step,
        time_s=float(step),
        num_completions=8,
        num_tokens=80,
        filtered={},
        reward_mean=None,
        pass_rate=None,
        tokens_mean=None,
        truncated_share=truncated,
        interrupted_share=None,
        spanning_share=None,
        grading_failed_share=failed,
        age_mean=None,
        age_largest=None,
        trainer=measured,
        **blank,
    )


def raised(rows, *, fold=None):
    fold, alarms = fold or AlarmFold(), Alarms(window_steps=3)
    return [(event.step, event.alarm) for one in rows for event in fold.update(one, alarms=alarms)]


def test_one_bad_step_does_not_shout_and_a_bad_stretch_shouts_once():
    one = [row(step, truncated=0.25 if step == 4 else 0.0) for step in range(1, 10)]
    assert raised(one) == []  # the worst mean of three is .083
    stretch = [row(step, truncated=0.25 if 4 <= step <= 8 else 0.0) for step in range(1, 12)]
    assert raised(stretch) == [(5, "truncation")]  # (0 + .25 + .25) / 3 = .167
    again = stretch + [row(step, truncated=0.25) for step in range(12, 16)]
    assert raised(again) == [(5, "truncation"), (13, "truncation")]


def test_nothing_is_judged_before_the_window_is_full():
    assert raised([row(1, truncated=1.0), row(2, truncated=1.0)]) == []


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("ess", {"ess": 0.4}),
        ("entropy", {"entropy": 0.004}),
        ("mismatch", {"mismatch_max": 0.06}),
        ("grader_failures", {"failed": 0.06}),
        ("truncation", {"truncated": 0.11}),
    ],
)
def test_each_alarm_knows_its_side(name, measured):
    fold = AlarmFold()
    (event,) = [event for step in (1, 2, 3) for event in fold.update(row(step, **measured), alarms=Alarms(window_steps=3))]
    assert (event.alarm, event.step, event.stops) == (name, 3, False)
    assert event.value == pytest.approx(next(iter(measured.values())))


def test_healthy_values_raise_nothing():
    assert raised([row(step, truncated=0.099, failed=0.049, ess=0.51, entropy=0.006, mismatch_max=0.049) for step in range(9)]) == []


def test_steps_that_measured_nothing_are_no_zeros():
    rows = [row(step, ess=0.9 if step % 2 else None) for step in range(20)] + [row(20)]
    assert raised(rows) == []


def test_an_alarm_can_stop_the_run_or_be_off():
    bad = [row(step, ess=0.1, truncated=1.0) for step in range(3)]
    alarms = Alarms.model_validate({"window_steps": 2, "ess": {"action": "stop"}, "truncation": {"action": "off"}})
    fold = AlarmFold()
    events = [event for one in bad for event in fold.update(one, alarms=alarms)]
    assert [(event.alarm, event.stops) for event in events] == [("ess", True)]


def test_a_restored_fold_goes_on_as_if_nothing_had_been():
    rows = [row(step, truncated=0.2 * (step % 7 > 3)) for step in range(40)]
    fold = AlarmFold()
    before = raised(rows[:17], fold=fold)
    assert before + raised(rows[17:], fold=AlarmFold.restored(fold.state())) == raised(rows)


def test_a_wrong_setting_is_refused():
    with pytest.raises(ValidationError):
        Alarms.model_validate({"truncation": {"limit": 1.5}})
    with pytest.raises(ValidationError):
        Alarms.model_validate({"truncation": {"action": "shout"}})
