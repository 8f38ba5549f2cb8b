"""Folds over hand-made logs: every expected number is summed by hand in the comment beside it."""

import itertools
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalerl.accounting.curves import CurveFold
from scalerl.accounting.ledger import LedgerFold
from scalerl.accounting.metrics import MetricsFold
from scalerl.core.errors import CorruptLogError, DataError
from scalerl.core.units import DEVICE_HOURS, FLOPS, STEPS, TOKENS, USD
from scalerl.records.cost import Activity, Cost
from scalerl.records.events import (
    BaseReady,
    CheckpointStarted,
    Evaluated,
    GroupFinished,
    Restarted,
    Resumed,
    RunEntry,
    RunStarted,
    Spent,
    StepFinished,
)
from scalerl.records.rollout import Outcome

GENERATE, TRAIN, IDLE, EVALUATE, GRADE = Activity.GENERATE, Activity.TRAIN, Activity.IDLE, Activity.EVALUATE, Activity.GRADE
LOST = Activity.LOST


def entries(*timed_events):
    return [RunEntry(seq, float(time_s), event) for seq, (time_s, event) in enumerate(timed_events)]


def folded(fold, log):
    for entry in log:
        fold.update(entry)
    return fold


def group(number, *, values=(1.0, 0.0), versions=(0, 0), **columns):
    count = len(values)
    defaults = {
        "num_tokens": (10,) * count,
        "passed": tuple(None if value is None else value > 0 for value in values),
        "finished": (True,) * count,
        "first_versions": (versions[0],) * count,
        "last_versions": (versions[1],) * count,
    }
    return GroupFinished(group=number, prompt_id=f"p{number}", epoch=0, task="chain", values=values, **{**defaults, **columns})


def cost(device, activity, seconds, **amounts):
    return Cost(device, activity, seconds=seconds, **amounts)


def test_what_a_lost_generator_did_is_waste_and_leaves_the_axis():
    """Of 60 s on two devices at .001 dollars a device-second, 25 s of one were lost, and 5 s of loading another one were not."""
    lost = Restarted(role="generator", reason="", costs=(cost("generator:0", LOST, 25.0), cost("generator:0", Activity.LOAD, 5.0)))
    log = entries(
        (0, RunStarted(recipe_hash="abc", num_devices=2, usd_per_device_hour=3.6)),
        (10, BaseReady()),
        (50, lost),
        (70, StepFinished(step=1, version=1)),
        (80, Evaluated(task="chain", version=1, num_passed=1, num_graded=2)),
    )
    curve = folded(CurveFold(), log)
    assert curve.curve("chain", axis=DEVICE_HOURS).compute.tolist() == pytest.approx([(2 * 60.0 - 25.0) / 3600.0])
    assert curve.curve("chain", axis=USD).compute.tolist() == pytest.approx([0.095])
    ledger = folded(LedgerFold(), log).ledger()
    assert ledger.wasted_device_s == 25.0
    assert [row.device_s for row in ledger.rows if row.activity == LOST] == [25.0]


def test_an_evaluation_beside_training_stands_at_the_compute_that_its_version_had_taken():
    """Version 1 is there after 40 s, version 2 after 60 s; the evaluation of the first ends at 100 s, 30 s of which training waited."""
    log = entries(
        (0, RunStarted(recipe_hash="abc", num_devices=1)),
        (0, BaseReady()),
        (40, StepFinished(step=1, version=1, costs=(cost("trainer:0", TRAIN, 40.0, flops=7.0),))),
        (60, StepFinished(step=2, version=2, costs=(cost("trainer:0", TRAIN, 20.0, flops=5.0),))),
        (100, Evaluated(task="chain", version=1, num_passed=1, num_graded=2, blocked_s=30.0, costs=(cost("g", EVALUATE, 50.0, flops=9),))),
        (110, StepFinished(step=3, version=3, costs=(cost("trainer:0", TRAIN, 10.0, flops=3.0),))),
        (120, Evaluated(task="chain", version=3, num_passed=1, num_graded=2)),
    )
    curve = folded(CurveFold(), log)
    assert curve.curve("chain", axis=FLOPS).compute.tolist() == [7.0, 15.0]
    assert curve.curve("chain", axis=DEVICE_HOURS).compute.tolist() == pytest.approx([40.0 / 3600.0, 80.0 / 3600.0])


# Two devices at 3.6 dollars an hour: .001 dollars a device-second.
LOG = entries(
    (0, RunStarted(recipe_hash="abc", num_devices=2, usd_per_device_hour=3.6)),
    (10, group(1)),
    (
        20,
        Spent(
            costs=(
                cost("generator:0", GENERATE, 18.0, flops=100.0, tokens=20),
                cost("trainer:0", IDLE, 19.0, detail="waits for a batch"),
            )
        ),
    ),
    (
        40,
        StepFinished(
            step=1,
            version=1,
            trained=(1,),
            costs=(
                cost("trainer:0", TRAIN, 20.0, flops=300.0, overhead_flops=30.0, tokens=20),
                cost("generator:0", GENERATE, 20.0, flops=100.0, tokens=20),
            ),
        ),
    ),
    (
        50,
        Evaluated(
            task="chain",
            version=1,
            num_passed=30,
            num_graded=100,
            blocked_s=10.0,
            costs=(
                cost("generator:0", EVALUATE, 10.0, flops=50.0, tokens=1000),
                cost("trainer:0", IDLE, 10.0, detail="waits for an evaluation"),
            ),
        ),
    ),
    (60, Spent(costs=(cost(None, GRADE, 7.0, tokens=40, usd=0.5, detail="judge some-model"),))),
)


def test_the_ledgers_rows_are_hand_sums():
    ledger = folded(LedgerFold(), LOG).ledger()
    rows = {(row.activity, row.detail): row for row in ledger.rows}
    assert ledger.elapsed_device_s == 120.0  # 60 s x 2 devices
    assert {key: row.device_s for key, row in rows.items()} == {
        ("generate", ""): 38.0,  # 18 + 20
        ("train", ""): 20.0,
        ("idle", "waits for a batch"): 19.0,
        ("evaluate", ""): 10.0,
        ("idle", "waits for an evaluation"): 10.0,
        ("grade", "judge some-model"): 0.0,  # 7 s of somebody else's device
        ("unbooked", ""): 23.0,  # 120 - 38 - 20 - 19 - 10 - 10
    }
    assert (rows["generate", ""].flops, rows["generate", ""].tokens) == (200.0, 40)
    assert (rows["train", ""].flops, rows["train", ""].overhead_flops) == (300.0, 30.0)
    assert rows["generate", ""].share == pytest.approx(38.0 / 120.0)
    assert rows["generate", ""].usd == pytest.approx(0.038)
    assert rows["grade", "judge some-model"].usd == pytest.approx(0.5)
    assert ledger.unbooked_share == pytest.approx(23.0 / 120.0)
    assert sum(row.device_s for row in ledger.rows) == pytest.approx(ledger.elapsed_device_s)
    assert [row.activity for row in ledger.rows][0::6] == ["generate", "unbooked"]
    assert ledger.to_dict()["rows"][0]["activity"] == "generate"


def test_the_curves_point_is_at_the_compute_of_its_version():
    fold = folded(CurveFold(), LOG)
    assert fold.tasks() == ["chain"]
    flops = fold.curve("chain")
    assert flops.axis == FLOPS
    assert flops.compute.tolist() == [500.0]  # 100 + 300 + 100: the evaluation and padding are not on the axis
    assert flops.reward.tolist() == [0.3]
    assert flops.trials.tolist() == [100.0]
    assert fold.curve("chain", axis=TOKENS).compute.tolist() == [60.0]
    assert fold.curve("chain", axis=DEVICE_HOURS).compute.tolist() == pytest.approx([80.0 / 3600.0])  # made at 40 s
    assert fold.curve("chain", axis=USD).compute.tolist() == pytest.approx([0.08])


def test_an_evaluation_that_blocks_leaves_the_axis():
    log = [
        *LOG,
        *[
            RunEntry(6 + i, e.time_s, e.event)
            for i, e in enumerate(
                entries((70, StepFinished(step=2, version=2)), (80, Evaluated(task="chain", version=2, num_passed=50, num_graded=100)))
            )
        ],
    ]
    curve = folded(CurveFold(), log).curve("chain", axis=DEVICE_HOURS)
    assert curve.compute.tolist() == pytest.approx([80.0 / 3600.0, 120.0 / 3600.0])  # (70 - 10 blocked) x 2


def test_without_a_price_dollars_are_unknown_and_not_zero():
    log = entries(
        (0, RunStarted(recipe_hash="abc", num_devices=1)),
        (5, StepFinished(step=1, version=1)),
        (6, Evaluated(task="t", version=1, num_passed=1, num_graded=2)),
    )
    assert folded(LedgerFold(), log).ledger().rows[0].usd is None
    fold = folded(CurveFold(), log)
    with pytest.raises(DataError, match="the run does not know its USD; choose one of flops, device_hours"):
        fold.curve("t", axis=USD)
    with pytest.raises(DataError, match="steps"):
        fold.curve("t", axis=STEPS)
    with pytest.raises(DataError, match="task 'u' has no evaluation"):
        fold.curve("u")


def test_an_evaluation_without_grades_is_no_point_and_one_of_an_unknown_version_is_damage():
    log = entries((0, RunStarted(recipe_hash="abc", num_devices=1)), (1, Evaluated(task="t", version=0, num_passed=0, num_graded=0)))
    assert folded(CurveFold(), log).tasks() == []
    log = entries((0, RunStarted(recipe_hash="abc", num_devices=1)), (1, Evaluated(task="t", version=3, num_passed=1, num_graded=2)))
    with pytest.raises(DataError, match="version 3 was evaluated, but is not among the latest ones made"):
        folded(CurveFold(), log)


def test_case_I2_the_lineage_that_goes_on_wins_and_the_rest_is_waste():
    """Steps of 10 s, a crash after step 5, a resume 1,000 s later from the checkpoint after step 3, its steps at 12, 22 and 32 s."""
    rewards, again = [10, 20, 30, 40, 50], [38, 47, 55]
    log = [(0, RunStarted(recipe_hash="abc", num_devices=1))]
    for step, passed in enumerate(rewards, 1):
        log.append((10 * step, StepFinished(step=step, version=step, costs=(cost("d", TRAIN, 10.0, flops=1.0),))))
        log.append((10 * step, Evaluated(task="t", version=step, num_passed=passed, num_graded=100)))
        if step == 3:
            log.append((30, CheckpointStarted(step=3)))
    checkpoint = len(log) - 5
    assert isinstance(log[checkpoint][1], CheckpointStarted)
    log.append((1050, Resumed(from_seq=checkpoint)))
    for step, passed, at in zip((4, 5, 6), again, (12, 22, 32), strict=True):
        log.append((1050 + at, StepFinished(step=step, version=step, costs=(cost("d", TRAIN, 10.0, flops=1.0),))))
        log.append((1050 + at, Evaluated(task="t", version=step, num_passed=passed, num_graded=100)))
    log = entries(*log)
    curve = folded(CurveFold(), log).curve("t", axis=DEVICE_HOURS)
    assert curve.reward.tolist() == [0.10, 0.20, 0.30, 0.38, 0.47, 0.55]
    assert (curve.compute * 3600.0).tolist() == pytest.approx([10, 20, 30, 42, 52, 62])
    assert curve.wasted_compute * 3600.0 == pytest.approx(20.0)
    ledger = folded(LedgerFold(), log).ledger()
    assert ledger.elapsed_device_s == pytest.approx(82.0)  # 50 + 32: the pause is nobody's
    assert ledger.wasted_device_s == pytest.approx(20.0)
    assert ledger.wasted_flops == 2.0


def test_a_version_evaluated_before_the_crash_can_be_evaluated_again():
    log = entries(
        (0, RunStarted(recipe_hash="a", num_devices=1)),
        (1, StepFinished(step=1, version=1)),
        (2, CheckpointStarted(step=1)),
        (3, StepFinished(step=2, version=2)),
        (4, Evaluated(task="t", version=2, num_passed=1, num_graded=2)),
        (5, Resumed(from_seq=2)),
        (6, Evaluated(task="t", version=1, num_passed=1, num_graded=4)),
        (7, StepFinished(step=2, version=2)),
        (8, Evaluated(task="t", version=2, num_passed=2, num_graded=4)),
    )
    curve = folded(CurveFold(), log).curve("t", axis=DEVICE_HOURS)
    assert curve.reward.tolist() == [0.25, 0.5]
    assert (curve.compute * 3600.0).tolist() == pytest.approx([1.0, 4.0])


def test_what_the_base_took_is_booked_and_not_on_the_axis():
    """A warm start of an hour on two devices, then a step of 10 s."""
    log = entries(
        (0, RunStarted(recipe_hash="a", num_devices=2, usd_per_device_hour=3.6)),
        (3600, Spent(costs=(cost("trainer:0", Activity.WARM_START, 3600.0, flops=1e15), cost("generator:0", IDLE, 3600.0)))),
        (3600, BaseReady()),
        (3600, Evaluated(task="t", version=0, num_passed=1, num_graded=10)),
        (3610, StepFinished(step=1, version=1, costs=(cost("trainer:0", TRAIN, 10.0, flops=1e9),))),
        (3610, Evaluated(task="t", version=1, num_passed=5, num_graded=10)),
    )
    fold = folded(CurveFold(), log)
    assert (fold.curve("t", axis=DEVICE_HOURS).compute * 3600.0).tolist() == pytest.approx([0.0, 20.0])
    assert fold.curve("t").compute.tolist() == [0.0, 1e9]
    assert fold.spending.useful.usd == pytest.approx(0.02)
    ledger = folded(LedgerFold(), log).ledger()
    assert ledger.elapsed_device_s == 7220.0
    assert next(row.flops for row in ledger.rows if row.activity == "warm_start") == 1e15


def test_evaluations_of_several_tasks_may_end_in_any_order():
    log = entries(
        (0, RunStarted(recipe_hash="a", num_devices=1)),
        (1, StepFinished(step=1, version=1)),
        (2, StepFinished(step=2, version=2)),
        (3, Evaluated(task="math", version=2, num_passed=1, num_graded=2)),
        (4, Evaluated(task="code", version=1, num_passed=1, num_graded=4)),
    )
    assert folded(CurveFold(), log).curve("code", axis=DEVICE_HOURS).reward.tolist() == [0.25]


def test_third_parties_dollars_alone_are_not_what_a_run_costs():
    log = entries(
        (0, RunStarted(recipe_hash="a", num_devices=1)),
        (1, StepFinished(step=1, version=1, costs=(cost(None, GRADE, 1.0, usd=5.0),))),
        (2, Evaluated(task="t", version=1, num_passed=1, num_graded=2)),
    )
    with pytest.raises(DataError, match="does not know its USD"):
        folded(CurveFold(), log).curve("t", axis=USD)
    assert next(row.usd for row in folded(LedgerFold(), log).ledger().rows if row.activity == "grade") == 5.0


def test_a_resume_from_no_checkpoint_is_damage():
    log = entries((0, RunStarted(recipe_hash="a", num_devices=1)), (1, Resumed(from_seq=0)))
    with pytest.raises(CorruptLogError, match="resumed from event 0, which is no checkpoint"):
        folded(CurveFold(), log)


def test_state_stays_small_without_evaluations_too():
    fold, time_s = CurveFold(), 0.0
    sizes = []
    for step in range(1, 6001):
        time_s += 10.0
        fold.update(RunEntry(step, time_s, StepFinished(step=step, version=step)))
        if step % 3000 == 0:
            sizes.append(len(fold.state()))
    assert sizes[1] < 1.1 * sizes[0]


def test_metrics_that_are_not_finite_are_absent_not_zero():
    events = (RunStarted(recipe_hash="a", num_devices=1), StepFinished(step=1, version=1, metrics={"loss": math.nan, "norm": 2.0}))
    log = [msgspec.json.decode(msgspec.json.encode(entry), type=RunEntry) for entry in entries(*((0, event) for event in events))]
    row = MetricsFold().update(log[1])
    assert row.trainer == {"loss": None, "norm": 2.0}


@pytest.mark.parametrize("wrong", [{"seconds": math.nan}, {"flops": math.inf}, {"tokens": -1}, {"usd": -0.5}])
def test_a_cost_is_finite_and_not_negative(wrong):
    with pytest.raises(ValueError, match="a cost is finite and not negative"):
        Cost("d", TRAIN, **wrong)


def test_a_resume_without_checkpoint_wastes_everything():
    log = entries(
        (0, RunStarted(recipe_hash="a", num_devices=2)), (10, StepFinished(step=1, version=1)), (99, Resumed(from_seq=-1)), (100, Spent())
    )
    ledger = folded(LedgerFold(), log).ledger()
    assert (ledger.wasted_device_s, ledger.elapsed_device_s) == (20.0, 22.0)


def test_metrics_of_a_step_are_hand_counts():
    log = entries(
        (0, RunStarted(recipe_hash="abc", num_devices=1)),
        (1, StepFinished(step=1, version=1)),
        (2, StepFinished(step=2, version=2)),
        (
            3,
            group(
                1, values=(1.0, 0.0, None, 1.0), versions=(0, 2), outcomes=(Outcome.GRADED, Outcome.GRADED, Outcome.FAILED, Outcome.GRADED)
            ),
        ),
        (4, group(2, values=(0.0, 0.0), versions=(1, 1), num_tokens=(20, 30), finished=(True, False), num_inserted=(0, 5))),
        (5, group(3, values=(0.0, 0.0), versions=(2, 2))),
        (6, StepFinished(step=3, version=3, trained=(1,), filtered={"zero_variance": (2,)}, dropped=(3,), metrics={"loss": 0.25})),
    )
    fold = MetricsFold()
    rows = [row for entry in log if (row := fold.update(entry))]
    row = rows[-1]
    assert [row.step for row in rows] == [1, 2, 3]
    assert rows[0].reward_mean is None
    assert rows[0].age_largest is None
    assert (row.num_trained, row.num_filtered, row.num_dropped) == (1, 1, 1)
    assert row.reward_mean == pytest.approx(2.0 / 5.0)  # 1, 0, 1 and 0, 0: the failed grading is in neither
    assert row.pass_rate == pytest.approx(2.0 / 5.0)
    assert row.tokens_mean == pytest.approx(90.0 / 6.0)  # 4 x 10 + 20 + 30
    assert row.truncated_share == pytest.approx(1.0 / 6.0)
    assert row.interrupted_share == pytest.approx(1.0 / 6.0)
    assert row.spanning_share == pytest.approx(4.0 / 6.0)
    assert row.grading_failed_share == pytest.approx(1.0 / 6.0)
    assert (row.age_mean, row.age_largest) == (2.0, 2)  # version 2 is updated, the first token came from 0
    assert row.flat()["trainer/loss"] == 0.25
    assert (fold.totals.age_quantile(0.95), fold.waiting) == (2, {})


def test_completions_of_a_group_that_was_not_graded_at_all_count_as_failed_gradings():
    log = entries(
        (0, RunStarted(recipe_hash="abc", num_devices=1)),
        (1, group(1, values=(1.0, 0.0))),
        (2, group(2, values=(None, None), outcomes=(Outcome.FAILED, Outcome.FAILED))),
        (3, StepFinished(step=1, version=1, trained=(1,), failed=(2,))),
    )
    fold = MetricsFold()
    (row,) = [row for entry in log if (row := fold.update(entry))]
    assert (row.grading_failed_share, row.num_completions, row.num_failed_groups) == (0.5, 2, 1)
    assert fold.waiting == {}


def test_ages_go_back_with_a_resume():
    log = entries(
        (0, RunStarted(recipe_hash="abc", num_devices=1)),
        (1, group(1)),
        (2, StepFinished(step=1, version=1, trained=(1,))),
        (3, CheckpointStarted(step=1)),
        (4, group(2)),
        (5, StepFinished(step=2, version=2, trained=(2,))),
        (6, group(3)),
        (7, Resumed(from_seq=3)),
        (8, group(2)),
        (9, StepFinished(step=2, version=2, trained=(2,))),
    )
    fold = folded(MetricsFold(), log)
    assert fold.totals.age_counts == {0: 1, 1: 1}
    assert fold.waiting == {}
    assert MetricsFold().totals.age_quantile(0.5) is None


def random_logs():
    """Logs of steps, groups, evaluations, checkpoints and resumes in any order that a run could write."""
    kinds = st.sampled_from(["group", "step", "evaluate", "checkpoint", "resume", "spend"])
    return st.lists(st.tuples(kinds, st.floats(0.0, 100.0)), max_size=40).map(_log_of)


def _log_of(steps):
    log, time_s, version, number, checkpoints = (
        [(0.0, RunStarted(recipe_hash="a", num_devices=3, usd_per_device_hour=1.0))],
        0.0,
        0,
        0,
        [(-1, 0)],
    )
    waiting = []
    for kind, pause_s in steps:
        time_s += pause_s
        if kind == "group":
            number += 1
            waiting.append(number)
            event = group(number, versions=(version, version))
        elif kind == "step":
            version += bool(waiting)
            event = StepFinished(
                step=len(log), version=version, trained=tuple(waiting), costs=(cost("trainer:0", TRAIN, pause_s, flops=pause_s),)
            )
            waiting = []
        elif kind == "evaluate":
            event = Evaluated(task="t", version=version, num_passed=1, num_graded=3, blocked_s=pause_s / 2.0)
        elif kind == "checkpoint":
            checkpoints.append((len(log), version))
            event = CheckpointStarted(step=len(log))
        elif kind == "resume" and len(checkpoints) > 1:
            seq, version = checkpoints[-1]
            waiting = []
            event = Resumed(from_seq=seq)
        else:
            event = Spent(costs=(cost("generator:0", GENERATE, pause_s, tokens=3),))
        log.append((time_s, event))
    return entries(*log)


@given(random_logs(), st.data())
def test_folding_the_rest_onto_a_restored_state_equals_folding_it_all(log, data):
    cut = data.draw(st.integers(0, len(log)))
    for kind in (LedgerFold, CurveFold, MetricsFold):
        resumed = kind.restored(folded(kind(), log[:cut]).state())
        assert folded(resumed, log[cut:]).state() == folded(kind(), log).state()


@given(random_logs())
def test_every_second_of_every_device_has_a_row_and_the_axis_never_runs_back(log):
    ledger = folded(LedgerFold(), log).ledger()
    assert sum(row.device_s for row in ledger.rows) == pytest.approx(ledger.elapsed_device_s, abs=1e-6)
    fold = folded(CurveFold(), log)
    if fold.tasks():
        compute = fold.curve("t", axis=DEVICE_HOURS).compute
        assert all(later >= earlier for earlier, later in itertools.pairwise(compute))


def test_what_a_checkpoint_does_not_settle_is_waste_after_a_resume():
    """Two groups of 20 tokens took 400 FLOPs; one is settled. The other is generated again, so its 200 FLOPs were for nothing."""
    log = entries(
        (0, RunStarted(recipe_hash="x", num_devices=1)),
        (1, group(0)),
        (2, group(1, costs=(cost("generator:0", GENERATE, 2.0, flops=400.0, tokens=40),))),
        (3, StepFinished(step=1, version=1, trained=(0,), costs=(cost("trainer:0", TRAIN, 1.0, flops=60.0, tokens=20),))),
        (4, CheckpointStarted(step=1)),
        (6, Spent(costs=(cost("generator:0", GENERATE, 1.0, flops=10.0, tokens=1),))),
        (9, Resumed(from_seq=4)),
    )
    spending = folded(LedgerFold(), log).spending
    assert (spending.useful.flops, spending.useful.tokens) == (260.0, 40)
    assert (spending.wasted.flops, spending.wasted.tokens) == (210.0, 21)
    # A second resume from there finds nothing more to give up.
    again = folded(LedgerFold(), [*log, RunEntry(7, 11.0, Resumed(from_seq=4))]).spending
    assert (again.useful.flops, again.wasted.flops) == (260.0, 210.0)
