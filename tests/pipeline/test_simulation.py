"""The loop under simulated time: nothing is lost, nothing trained twice, nothing older than k, whatever happens."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from scalerl.core.errors import ScalerlError
from scalerl.core.random import permutation, stream_key
from scalerl.curriculum.filters.overlong import Overlong
from scalerl.curriculum.filters.staleness import Staleness
from scalerl.curriculum.filters.zero_variance import ZeroVariance
from scalerl.curriculum.selectors.no_positive_resampling import NoPositiveResampling
from scalerl.curriculum.selectors.uniform import Uniform
from scalerl.objective.length_controls.truncation import Truncation
from scalerl.pipeline.orchestrator import LoopSettings
from scalerl.pipeline.prompt_queue import QueueState
from scalerl.pipeline.schedules.pipeline_rl import PipelineRl
from scalerl.pipeline.schedules.ppo_off_policy import PpoOffPolicy
from scalerl.pipeline.simulation import Scenario, lineage, simulate
from scalerl.records.events import GroupFinished, StepFinished


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


def drawn(seed: int) -> Scenario:
    """A scenario whose every choice follows from the seed."""
    dice = random.Random(f"scenario {seed}")
    off_policy = dice.random() < 0.15
    k = dice.choice([0, 0, 1, 2, 3, 8])
    loop = settings(
        num_prompts=dice.choice([1, 2, 4, 6]),
        group=dice.choice([2, 3, 4]),
        slots=dice.choice([4, 9, 16, 40]),
        k=max(k, 1) if off_policy else k,
        schedule=PpoOffPolicy() if off_policy else PipelineRl(),
        on_stale=dice.choice(["hold", "hold", "drop", "cap_admission"]),
        ready_batches=dice.choice([1, 1, 2]),
        filters=dice.choice([(), (ZeroVariance(),), (ZeroVariance(refill=True),)]),
        checkpoint_every=dice.choice([1, 2, 5]),
    )
    return Scenario(
        loop,
        selector=dice.choice([Uniform(), NoPositiveResampling()]),
        seed=seed,
        mean_tokens=dice.choice([2.0, 8.0, 20.0]),
        train_s=dice.choice([0.5, 6.0, 40.0]),
        grade_s=dice.choice([0.01, 0.5, 10.0]),
        pass_rate=dice.choice([0.2, 0.5]),
        grading_failure_rate=dice.choice([0.0, 0.0, 0.2]),
        duplicate_rate=dice.choice([0.0, 0.2]),
        stall_rate=dice.choice([0.0, 0.02]),
        num_crashes=dice.choice([0, 0, 1, 3]),
    )


def filtered(step: StepFinished) -> list[int]:
    return [group for groups in step.filtered.values() for group in groups]


def handed_out(queue: QueueState, num_prompts: int, seed: int) -> set[tuple[int, str]]:
    """(epoch, prompt) of the turns before the queue's place, but for those that are open."""
    turns = {(epoch, place) for epoch in range(queue.epoch + 1) for place in range(num_prompts if epoch < queue.epoch else queue.place)}
    orders = {epoch: permutation(stream_key(seed, "order", epoch), num_prompts) for epoch in range(queue.epoch + 1)}
    return {(epoch, f"prompt-{orders[epoch][place]}") for epoch, place in turns - {(turn.epoch, turn.place) for turn in queue.open}}


@pytest.mark.parametrize("seed", range(200))
def test_nothing_is_lost_or_trained_twice_or_too_old(seed: int) -> None:
    survives(drawn(seed))


@pytest.mark.parametrize("seed", range(10))
def test_groups_that_are_settled_between_a_step_and_its_checkpoint_are_told_after_a_crash(seed: int) -> None:
    loop = settings(k=8, slots=40, filters=(ZeroVariance(refill=True),), evaluate_every=1, checkpoint_every=1)
    survives(Scenario(loop, Uniform(), seed=seed, decode_step_s=3.0, grade_s=2.0, grading_failure_rate=0.2, num_crashes=6))


def survives(scenario: Scenario) -> None:
    """Simulate, and hold what was told against what the prompt queue says."""
    report = simulate(scenario)
    assert report.reason == "steps"
    kept = [entry.event for entry in lineage(report.events)]
    steps = [event for event in kept if isinstance(event, StepFinished)]
    assert [step.step for step in steps] == list(range(1, scenario.num_steps + 1))
    # Every settled group was finished once, and every prompt of an epoch is settled once.
    finished = {event.group: event for event in kept if isinstance(event, GroupFinished)}
    untold = report.checkpoint.untold
    settled = [
        *(group for step in steps for group in (*step.trained, *filtered(step), *step.dropped, *step.failed)),
        *(group for groups in untold.filtered.values() for group in groups),
        *untold.dropped,
        *untold.failed,
    ]
    assert len(settled) == len(set(settled))
    visits = Counter((finished[group].epoch, finished[group].prompt_id) for group in settled)
    assert set(visits.values()) <= {1}
    # And none is lost: what the queue has handed out and does not hold open was told, but for what the selector left out.
    if isinstance(scenario.selector, Uniform):
        assert set(visits) == handed_out(report.checkpoint.queue, scenario.num_prompts, scenario.seed)


def test_the_drawn_scenarios_do_what_they_are_for() -> None:
    reports = [(scenario, simulate(scenario)) for scenario in map(drawn, range(60))]
    kept = [event for _, report in reports for event in (entry.event for entry in report.events)]
    assert sum(report.num_crashes for _, report in reports) >= 20
    assert any(isinstance(event, StepFinished) and event.dropped for event in kept)
    assert any(isinstance(event, StepFinished) and event.failed for event in kept)
    assert any(isinstance(event, StepFinished) and event.filtered for event in kept)


def test_a_seed_replays_exactly() -> None:
    assert simulate(drawn(3)).events == simulate(drawn(3)).events


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
    steps = [entry.event for entry in report.events if isinstance(entry.event, StepFinished)]
    empty = [step for step in steps if not step.trained]
    assert empty
    assert steps[-1].version == len(steps) - len(empty)


def test_a2_everything_filtered_ends_with_a_sentence() -> None:
    loop = settings(patience=6, k=1, filters=(ZeroVariance(refill=True),))
    with pytest.raises(Exception, match=r"0 kept, 24 filtered, mean reward 1\.000"):
        simulate(Scenario(loop, selector=Uniform(), seed=0, pass_rate=1.0))


def test_what_is_cut_off_reaches_the_trainer_without_tokens_and_with_its_score() -> None:
    loop = settings(k=1, filters=(Overlong(),))
    report = simulate(Scenario(loop, selector=Uniform(), seed=0, cut_off_rate=0.3))
    assert report.masked
    assert all(not completion.finished and completion.score is not None for completion in report.masked)
    steps = [entry.event for entry in report.events if isinstance(entry.event, StepFinished)]
    assert any(step.filtered.get("overlong") for step in steps), "a group that is cut off as a whole is filtered"


def test_a2_everything_cut_off_ends_with_a_sentence() -> None:
    loop = settings(patience=6, k=1, filters=(Overlong(),))
    with pytest.raises(ScalerlError, match=r"the last 24 groups gave nothing to train on: 0 kept, 24 filtered"):
        simulate(Scenario(loop, selector=Uniform(), seed=0, cut_off_rate=1.0))


def test_groups_older_than_the_filter_permits_are_filtered() -> None:
    loop = settings(k=4, slots=40, filters=(Staleness(most_versions=1),))
    report = simulate(Scenario(loop, selector=Uniform(), seed=2))
    steps = [entry.event for entry in report.events if isinstance(entry.event, StepFinished)]
    assert max(report.ages) == 1
    assert any(step.filtered.get("staleness") for step in steps)


def test_g6_a_grader_that_always_fails_ends_the_run_instead_of_generating_for_ever() -> None:
    loop = settings(patience=6, k=1)
    with pytest.raises(ScalerlError, match=r"the last 24 groups gave nothing to train on: 0 kept, 0 filtered, 24 not graded"):
        simulate(Scenario(loop, selector=Uniform(), seed=0, grading_failure_rate=1.0))


def test_patience_counts_groups_in_a_row_and_not_all_that_a_batch_had_refilled() -> None:
    """Of 20 groups one is kept: 40 refills fill a batch of two, though never 80 come without one that is kept."""
    loop = settings(num_prompts=8, patience=5, filters=(ZeroVariance(refill=True),))
    report = simulate(Scenario(loop, selector=Uniform(), seed=1, pass_rate=0.06, num_steps=6))
    assert report.reason == "steps"
    steps = [entry.event for entry in report.events if isinstance(entry.event, StepFinished)]
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
