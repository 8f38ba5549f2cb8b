"""The loop under simulated time, in scenarios made for one thing each."""

from __future__ import annotations

import pytest

from scalerl.core.errors import ScalerlError
from scalerl.curriculum.filters.overlong import Overlong
from scalerl.curriculum.filters.staleness import Staleness
from scalerl.curriculum.filters.zero_variance import ZeroVariance
from scalerl.curriculum.selectors.no_positive_resampling import NoPositiveResampling
from scalerl.curriculum.selectors.uniform import Uniform
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.pipeline.orchestrator import LoopSettings
from scalerl.pipeline.schedules.pipeline_rl import PipelineRl
from scalerl.pipeline.simulation import Ending, Interruption, Report, Scenario, lineage, simulate
from scalerl.records.events import GroupFinished, Restarted, StepFinished


def settings(**changes: object) -> LoopSettings:
    values: dict[str, object] = {
        "num_prompts": 4,
        "group": 2,
        "slots": 12,
        "k": 2,
        "schedule": PipelineRl(),
        "on_stale": "hold",
        "ready_batches": 1,
        "patience": 50,
        "filters": (ZeroVariance(),),
        "control": Truncation(),
        "evaluate_every": 5,
        "evaluation_growth": 1.6,
        "evaluation_samples": 1,
        "checkpoint_every": 3,
    }
    return LoopSettings(**{**values, **changes})  # type: ignore[arg-type]


def filtered(step: StepFinished) -> list[int]:
    return [group for groups in step.filtered.values() for group in groups]


def steps_of(report: Report) -> list[StepFinished]:
    return [entry.event for entry in report.events if isinstance(entry.event, StepFinished)]


@pytest.mark.parametrize("seed", range(10))
def test_groups_that_are_settled_between_a_step_and_its_checkpoint_are_told_after_a_crash(seed: int) -> None:
    loop = settings(k=8, slots=40, filters=(ZeroVariance(refill=True),), evaluate_every=1, checkpoint_every=1)
    kills = tuple(Interruption(Ending.KILLED_AT_EVENT, after=20 + 7 * number + seed) for number in range(6))
    report = simulate(Scenario(loop, Uniform(), seed=seed, decode_step_s=3.0, grade_s=2.0, grading_failure_rate=0.2, interruptions=kills))
    kept = [entry.event for entry in lineage(report.events)]
    assert [event.step for event in kept if isinstance(event, StepFinished)] == list(range(1, 13))


def test_a_run_whose_disk_is_full_goes_on_from_the_checkpoint_before() -> None:
    loop = settings(k=1, checkpoint_every=2, filters=())
    report = simulate(Scenario(loop, Uniform(), seed=1, num_steps=6, interruptions=(Interruption(Ending.DISK_FULL, after=5),)))
    assert report.endings == ["the checkpoint cannot be written (No space left on device); free disk space, then resume"]
    assert [step.step for step in steps_of(report)] == [1, 2, 3, 4, 3, 4, 5, 6]


def test_a_lost_generator_is_replaced_and_the_run_goes_on() -> None:
    report = simulate(Scenario(settings(k=2, filters=()), Uniform(), seed=1, generator_losses=(40, 90), most_restarts=2))
    assert [step.step for step in steps_of(report)] == list(range(1, 13))
    restarted = [entry.event for entry in report.events if isinstance(entry.event, Restarted)]
    assert len(restarted) == 2
    assert all(event.role == "generator" and event.reason == "the generator died" for event in restarted)


@pytest.mark.parametrize("seed", range(12))
def test_a_generator_that_is_lost_again_and_again_loses_nothing(seed: int) -> None:
    """Whether groups are in grading, the trainer publishes or an evaluation runs when it dies, or its successor is not ready."""
    loop = settings(k=seed % 3, evaluate_every=1, evaluation_growth=1.0, filters=(ZeroVariance(refill=True),))
    losses = tuple(turn for turn in range(20 + seed, 4000) if turn % 53 in (0, 3))
    times = {"grade_s": (2.0, 20.0)[seed // 2 % 2], "push_s": 5.0, "start_s": (0.1, 30.0)[seed % 2]}
    scenario = Scenario(loop, Uniform(), seed=seed, num_steps=8, generator_losses=losses, most_restarts=200, **times)
    report = simulate(scenario)
    assert report.reason == "steps"
    assert sum(isinstance(entry.event, Restarted) for entry in report.events) >= 5


def test_a_generator_that_never_stays_ends_life_after_life_and_loses_nothing() -> None:
    """Also while it is given the weights of a checkpoint."""
    loop = settings(k=1, checkpoint_every=1, filters=())
    report = simulate(Scenario(loop, Uniform(), seed=1, num_steps=6, generator_losses=tuple(range(100, 160)), most_restarts=0))
    assert set(report.endings) == {"the generator died too often; resume the run"}
    assert len(report.endings) >= 5
    kept = [entry.event for entry in lineage(report.events)]
    assert [event.step for event in kept if isinstance(event, StepFinished)] == list(range(1, 7))


def test_a_generator_lost_too_often_ends_the_run_with_its_last_step_saved() -> None:
    loop = settings(k=2, filters=(), checkpoint_every=100)
    report = simulate(Scenario(loop, Uniform(), seed=1, generator_losses=(150,), most_restarts=0))
    assert report.endings == ["the generator died too often; resume the run"]
    assert [step.step for step in steps_of(report)] == list(range(1, 13))


def test_an_epoch_visits_every_prompt_once_before_the_next_begins() -> None:
    report = simulate(Scenario(settings(filters=()), selector=Uniform(), seed=1, num_prompts=10, num_steps=5))
    finished = {entry.event.group: entry.event for entry in report.events if isinstance(entry.event, GroupFinished)}
    first = [event.prompt_id for event in finished.values() if event.epoch == 0]
    assert sorted(first) == sorted(f"prompt-{index}" for index in range(10))


@pytest.mark.parametrize("ready_batches", [1, 2])
def test_ready_batches_bounds_the_groups_that_wait_for_a_slow_trainer(ready_batches: int) -> None:
    """k bounds age, not queue depth: a generator that is faster does not fill the queue up to k."""
    loop = settings(k=8, slots=8, ready_batches=ready_batches, filters=())
    report = simulate(Scenario(loop, selector=Uniform(), seed=5, train_s=500.0, mean_tokens=1.0, num_steps=20))
    assert report.most_waiting <= ready_batches * loop.num_prompts
    assert sum(report.ages) / len(report.ages) <= ready_batches + 1 < loop.k


@pytest.mark.parametrize(("slots", "group", "num_prompts", "expected"), [(8, 2, 1, 5), (32, 2, 1, 20), (7, 3, 1, 4), (4, 2, 6, 7)])
def test_a_few_groups_wait_for_the_slots_that_become_free(slots: int, group: int, num_prompts: int, expected: int) -> None:
    """As many groups as the slots hold, or a batch, and a quarter of what the slots hold, at least one."""
    loop = settings(k=50, slots=slots, group=group, num_prompts=num_prompts, filters=())
    report = simulate(Scenario(loop, selector=Uniform(), seed=5, num_steps=4))
    assert report.most_in_flight == expected


def test_stragglers_are_held_for_and_not_only_one_step_ahead() -> None:
    report = simulate(
        Scenario(settings(num_prompts=1, slots=64, filters=()), selector=Uniform(), seed=2, train_s=0.1, mean_tokens=30.0, num_steps=60)
    )
    assert max(report.ages) == 2


def test_a_synchronous_run_trains_on_the_version_that_sampled() -> None:
    report = simulate(Scenario(settings(k=0), selector=Uniform(), seed=4, num_steps=20))
    assert set(report.ages) == {0}


def test_a_batch_filtered_to_nothing_is_a_counted_step_without_update() -> None:
    """Case A2, without refill."""
    report = simulate(Scenario(settings(num_prompts=1), selector=Uniform(), seed=4, pass_rate=0.1, num_steps=20))
    steps = steps_of(report)
    empty = [step for step in steps if not step.trained]
    assert empty
    assert steps[-1].version == len(steps) - len(empty)


def test_a2_everything_filtered_ends_with_a_sentence() -> None:
    loop = settings(patience=6, k=1, filters=(ZeroVariance(refill=True),))
    with pytest.raises(ScalerlError) as ended:
        simulate(Scenario(loop, selector=Uniform(), seed=0, pass_rate=1.0))
    assert str(ended.value) == (
        "step 0: the last 24 groups gave nothing to train on: 0 kept, 24 filtered, mean reward 1.000; "
        "choose easier or harder prompts, a larger batch.group, or raise pipeline.patience"
    )


def test_what_is_cut_off_reaches_the_trainer_without_tokens_and_with_its_score() -> None:
    loop = settings(k=1, filters=(Overlong(),))
    report = simulate(Scenario(loop, selector=Uniform(), seed=0, cut_off_rate=0.3))
    finished = {entry.event.group: entry.event.finished for entry in report.events if isinstance(entry.event, GroupFinished)}
    trained = [finished[group] for step in steps_of(report) for group in step.trained]
    assert any(not all(group) for group in trained), "the rest of a group that is cut off in part is trained on"
    assert all(any(group) for group in trained)
    steps = steps_of(report)
    assert any(step.filtered.get("overlong") for step in steps), "a group that is cut off as a whole is filtered"


def test_a2_everything_cut_off_ends_with_a_sentence() -> None:
    loop = settings(patience=6, k=1, filters=(Overlong(),))
    with pytest.raises(ScalerlError, match=r"the last 24 groups gave nothing to train on: 0 kept, 24 filtered"):
        simulate(Scenario(loop, selector=Uniform(), seed=0, cut_off_rate=1.0))


def test_groups_older_than_the_filter_permits_are_filtered() -> None:
    loop = settings(k=4, slots=40, filters=(Staleness(most_versions=1),))
    report = simulate(Scenario(loop, selector=Uniform(), seed=2))
    steps = steps_of(report)
    assert max(report.ages) == 1
    assert any(step.filtered.get("staleness") for step in steps)


def test_g6_a_grader_that_always_fails_ends_the_run_instead_of_generating_for_ever() -> None:
    loop = settings(patience=6, k=1)
    with pytest.raises(ScalerlError) as ended:
        simulate(Scenario(loop, selector=Uniform(), seed=0, grading_failure_rate=1.0))
    assert str(ended.value) == (
        "step 0: the last 24 groups gave nothing to train on: 0 kept, 0 filtered, 24 not graded; "
        "see why the grader fails, then resume the run"
    )


def test_patience_counts_groups_in_a_row_and_not_all_that_a_batch_had_refilled() -> None:
    """Of 20 groups one is kept: 40 refills fill a batch of two, though never 80 come without one that is kept."""
    loop = settings(num_prompts=8, patience=5, filters=(ZeroVariance(refill=True),))
    report = simulate(Scenario(loop, selector=Uniform(), seed=1, pass_rate=0.06, num_steps=6))
    assert report.reason == "steps"
    steps = steps_of(report)
    assert max(len(filtered(step)) for step in steps) > loop.patience * loop.num_prompts


def test_what_is_in_flight_at_the_end_is_given_up() -> None:
    report = simulate(Scenario(settings(k=8, filters=()), selector=Uniform(), seed=3, num_steps=5))
    finished = {entry.event.group for entry in report.events if isinstance(entry.event, GroupFinished)}
    assert report.given_up - finished
    assert {turn.index for turn in report.checkpoint.queue.open}


def test_the_run_ends_when_every_prompt_is_left_out() -> None:
    loop = settings(filters=(), patience=1000)
    report = simulate(Scenario(loop, selector=NoPositiveResampling(), seed=0, pass_rate=1.0, num_steps=1000, num_prompts=10))
    assert report.reason == "the selector leaves out every training prompt"
    trained = [len(entry.event.trained) for entry in report.events if isinstance(entry.event, StepFinished)]
    # What was handed out before its prompt's last group was settled is trained on as well; the last batch is what is left.
    assert 10 <= sum(trained) <= 20
