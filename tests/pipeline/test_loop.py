"""The loop on a script: what each rule does, at the moment and with the numbers that it should."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from scalerl.core.errors import ScalerlError
from scalerl.core.random import permutation, stream_key
from scalerl.curriculum.filters.zero_variance import ZeroVariance
from scalerl.pipeline.orchestrator import LoopState, Place
from scalerl.pipeline.schedules.ppo_off_policy import PpoOffPolicy
from scalerl.records.cost import Cost
from scalerl.records.events import Evaluated, Restarted, StepFinished
from scalerl.records.roles import Handover
from tests.pipeline.script import Script, Stage, Told, loop_settings


def play(script: Script) -> Told:
    return Stage(script).play()


def ids(told: Told) -> list[list[int]]:
    """Trained groups, step by step."""
    return [[group.id for group in batch] for batch in told.batches]


def ages(told: Told) -> dict[int, int]:
    """Versions between a trained group's first token and the version that it was trained for."""
    return {group.id: version - group.first_version for version, batch in enumerate(told.batches) for group in batch}


def constant_up_to(last: int):
    """Groups 0 .. `last` - 1 have no variance."""
    return lambda group: (1.0, 1.0) if group < last else (0.0, 1.0)


# A2: filters


def test_a2_a_groups_that_a_filter_takes_out_give_their_slots_back():
    filters = (ZeroVariance(refill=True),)
    told = play(Script(loop_settings(num_prompts=4, k=1, filters=filters), num_steps=1, values=constant_up_to(8)))
    assert ids(told) == [[8, 9, 10, 11]]
    (step,) = told.steps
    assert step.filtered == {"zero_variance": tuple(range(8))}
    census = told.censuses[told.events.index(told.of(StepFinished)[0])]
    assert (census[Place.FILTERED], census[Place.TRAINED]) == (8, 4)
    # Nothing but P (k + 1) groups was ever outstanding.
    outstanding = [Place.IN_FLIGHT, Place.GRADING, Place.BUFFERED, Place.TRAINING]
    assert max(sum(census[place] for place in outstanding) for census in told.censuses) <= 8


def test_a2_a_without_refill_they_are_empty_steps_that_make_no_version():
    filters = (ZeroVariance(),)
    told = play(Script(loop_settings(num_prompts=4, k=1, filters=filters), num_steps=3, values=constant_up_to(8)))
    assert ids(told) == [[8, 9, 10, 11]]
    assert [step.version for step in told.steps] == [0, 0, 1]
    assert [step.filtered.get("zero_variance", ()) for step in told.steps] == [(0, 1, 2, 3), (4, 5, 6, 7), ()]


@pytest.mark.parametrize("refill", [True, False])
def test_a2_b_a_filter_that_leaves_nothing_ends_the_run_after_its_patience(refill):
    filters = (ZeroVariance(refill=refill),)
    stage = Stage(Script(loop_settings(num_prompts=4, k=1, patience=6, filters=filters), num_steps=100, values=constant_up_to(10**9)))
    with pytest.raises(ScalerlError, match=r"the last 24 groups gave nothing to train on: 0 kept, 24 filtered, mean reward 1\.000; choose"):
        stage.play()
    assert stage.told.batches == []
    assert stage.orchestrator.num_submitted <= 24 + 8


# A3: resume


def test_a3_what_was_generated_and_not_trained_at_the_crash_is_trained_next_and_once():
    """Twelve prompts, three a step, six outstanding; the run crashes after the checkpoint of step 1."""
    settings = loop_settings(num_prompts=3, k=1, checkpoint_every=1)
    crashed = Stage(Script(settings, num_steps=4, num_prompts=12))
    commit = crashed.commit

    def crash(step: int, state: bytes) -> None:
        commit(step, state)
        raise KeyboardInterrupt

    crashed.commit = crash  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        crashed.play()
    assert len(crashed.told.batches) == 1
    (saved,) = crashed.told.saved
    assert len(saved.queue.open) == 3, "buffered or in flight"

    resumed = play(Script(settings, num_steps=4, num_prompts=12, state=saved))
    order = [[group.prompt.id for group in batch] for batch in (*crashed.told.batches, *resumed.batches)]
    expected = [f"p{index}" for index in permutation(stream_key(0, "order", 0), 12)]
    assert [sorted(batch) for batch in order] == [sorted(expected[at : at + 3]) for at in (0, 3, 6, 9)]
    assert {group.epoch for batch in resumed.batches for group in batch} == {0}


# on_stale

STRAGGLER = 1


def with_straggler(on_stale: str, *, k: int = 2) -> Told:
    """One group takes forty seconds, all others one; a step takes one, too."""
    settings = loop_settings(num_prompts=2, k=k, on_stale=on_stale)
    return play(Script(settings, num_steps=12, sampling_s=lambda group: 40.0 if group == STRAGGLER else 1.0))


def test_hold_waits_for_a_straggler_until_it_is_k_versions_old_and_loses_nothing():
    told = with_straggler("hold")
    assert ages(told)[STRAGGLER] == 2
    assert not any(step.dropped for step in told.steps)
    # It was waited for: no step between the second and the fortieth second.
    times = [entry.time_s for entry in told.of(StepFinished)]
    assert max(later - earlier for earlier, later in pairwise(times)) > 30.0


def test_drop_waits_for_nobody_and_lets_go_of_what_came_too_late():
    told = with_straggler("drop")
    times = [entry.time_s for entry in told.of(StepFinished)]
    assert max(later - earlier for earlier, later in pairwise(times)) < 5.0
    assert STRAGGLER not in ages(told)
    slow = play(Script(loop_settings(on_stale="drop"), num_steps=60, sampling_s=lambda group: 40.0 if group == STRAGGLER else 1.0))
    assert [group for step in slow.steps for group in step.dropped] == [STRAGGLER]
    assert max(ages(slow).values()) <= 2


def test_cap_admission_generates_nothing_that_would_have_to_wait_behind_a_straggler():
    held, capped = with_straggler("hold"), with_straggler("cap_admission")
    assert ages(capped)[STRAGGLER] == 2
    assert not any(step.dropped for step in capped.steps)

    def submitted_behind(told: Told) -> int:
        """Groups that were submitted before the straggler was trained on."""
        step = next(number for number, batch in enumerate(ids(told)) if STRAGGLER in batch)
        return max(group for batch in ids(told)[: step + 1] for group in batch)

    assert submitted_behind(capped) <= submitted_behind(held)
    assert len(capped.submitted) >= 1
    outstanding = [Place.IN_FLIGHT, Place.GRADING, Place.BUFFERED]
    waiting = [
        sum(census[place] for place in outstanding)
        for census, entry in zip(capped.censuses, capped.events, strict=True)
        if 10.0 < entry.time_s < 40.0
    ]
    assert all(number <= 2 for number in waiting)


# Back-pressure


@pytest.mark.parametrize(("slow", "ready_batches"), [("grading_s", 1), ("grading_s", 2), ("training_s", 1), ("training_s", 2)])
def test_finished_groups_do_not_pile_up_before_whoever_is_slow(slow, ready_batches):
    settings = loop_settings(num_prompts=2, k=8, ready_batches=ready_batches)
    told = play(Script(settings, num_steps=12, **{slow: 100.0}))
    waiting = [census[Place.GRADING] + census[Place.BUFFERED] for census in told.censuses]
    assert max(waiting) == 2 * ready_batches < 2 * settings.k


# PPO-off-policy-k


def test_ppo_off_policy_k_trains_k_batches_of_frozen_weights_before_it_pushes():
    """arXiv 2510.13786, section 3.2: generate for k batches, then take k steps on them."""
    k = 3
    told = play(Script(loop_settings(num_prompts=2, k=k, schedule=PpoOffPolicy()), num_steps=9, sampling_s=lambda group: 1.0 + group % 4))
    assert told.pushed == [3, 6, 9]
    assert {len(call) for call in told.submitted} == {k * 2}
    assert [{group.first_version for group in batch} for batch in told.batches] == [{0}] * 3 + [{3}] * 3 + [{6}] * 3
    assert sorted(ages(told).values()) == sorted(2 * 3 * [0, 1, 2])


# Evaluation


def evaluations(told: Told) -> list[tuple[int, float, float]]:
    """(version, time, seconds that training stood still)"""
    found = [(entry.event, entry.time_s) for entry in told.of(Evaluated)]
    return [(event.version, time_s, event.blocked_s) for event, time_s in found if isinstance(event, Evaluated)]


def made_at(told: Told) -> dict[int, float]:
    """When each version was there."""
    return {entry.event.version: entry.time_s for entry in told.of(StepFinished) if isinstance(entry.event, StepFinished)}


def test_an_evaluation_runs_beside_training_and_is_told_later_of_its_own_version():
    """Base and last version are waited for; those of steps 1, 5 and 10 are not."""
    told = play(Script(loop_settings(evaluate_every=5), num_steps=14, evaluating_s=3.5))
    assert [version for version, _, _ in evaluations(told)] == [0, 1, 5, 10, 14]
    assert [blocked_s for _, _, blocked_s in evaluations(told)] == pytest.approx([3.5, 0.0, 0.0, 0.0, 3.5])
    for version, time_s, _ in evaluations(told)[1:4]:
        assert time_s == made_at(told)[version] + 3.5
        assert made_at(told)[version + 1] < time_s, "training went on meanwhile"


def test_the_next_evaluation_waits_for_the_one_that_runs_and_training_with_it():
    told = play(Script(loop_settings(evaluate_every=5), num_steps=10, evaluating_s=20.0))
    (_, base_s, _), (one, first_s, first_blocked_s), (five, second_s, second_blocked_s), _ = evaluations(told)
    assert (one, five) == (1, 5)
    assert first_s == made_at(told)[1] + 20.0
    assert first_blocked_s == pytest.approx(first_s - made_at(told)[5])
    assert second_s == first_s + 20.0, "of version 5, which is still in use"
    assert made_at(told)[6] > first_s
    # The last one falls due at once with that of the end, and both wait for it.
    assert second_blocked_s == pytest.approx(second_s - made_at(told)[10])
    assert base_s == 20.0


def test_a_synchronous_run_stands_still_while_it_evaluates():
    told = play(Script(loop_settings(k=0, evaluate_every=5), num_steps=10, evaluating_s=20.0))
    assert [version for version, _, _ in evaluations(told)] == [0, 1, 5, 10]
    assert [blocked_s for _, _, blocked_s in evaluations(told)] == pytest.approx([20.0] * 4)
    assert made_at(told)[6] > made_at(told)[5] + 20.0


@pytest.mark.parametrize("evaluating_s", [0.5, 30.0])
def test_an_evaluation_that_a_checkpoint_found_unfinished_is_made_again_after_a_resume(evaluating_s):
    """Of the checkpoint's own version: if that is an older one, its weights are gone."""
    settings = loop_settings(evaluate_every=5, checkpoint_every=7)
    script = Script(settings, num_steps=9, evaluating_s=evaluating_s)
    whole = play(script)
    saved = whole.saved[0]
    assert (saved.step, saved.is_evaluating) == (7, evaluating_s > 5.0)
    assert saved.evaluated == (1 if saved.is_evaluating else 5)
    resumed = play(Script(settings, num_steps=9, evaluating_s=evaluating_s, state=saved))
    assert [version for version, _, _ in evaluations(resumed)] == ([7, 9] if saved.is_evaluating else [9])


def test_a_step_without_update_evaluates_no_version_twice():
    filters = (ZeroVariance(),)
    settings = loop_settings(evaluate_every=1, evaluation_growth=1.1, filters=filters)
    told = play(Script(settings, num_steps=8, evaluating_s=20.0, values=lambda group: (1.0, 1.0) if 4 <= group < 12 else (0.0, 1.0)))
    versions = [version for version, _, _ in evaluations(told)]
    assert versions == sorted(set(versions)) == list(range(5))


# Restarts


def play_with_loss(script: Script, *, at_s: float) -> Told:
    stage = Stage(script)
    stage.loop.call_later(at_s, stage.lose)
    return stage.play()


def test_a_new_generator_does_again_what_the_lost_one_had_not_finished():
    """Lost at 9.5 s with an evaluation that began at 9, and groups in flight; the next one is there at 14.5 s."""
    settings = loop_settings(num_prompts=2, k=2, evaluate_every=4)
    script = Script(settings, num_steps=12, sampling_s=lambda group: 1.0 + group % 3, evaluating_s=3.0, most_restarts=1)
    told = play_with_loss(script, at_s=9.5)
    ((restarted, time_s),) = [(entry.event, entry.time_s) for entry in told.of(Restarted)]
    assert isinstance(restarted, Restarted)
    assert (restarted.role, restarted.reason, time_s) == ("generator", "the generator died", 14.5)
    assert restarted.groups
    assert list(restarted.groups) in told.submitted
    trained = [group for batch in ids(told) for group in batch]
    assert set(restarted.groups) <= set(trained)
    assert len(trained) == len(set(trained)) == 24
    assert max(ages(told).values()) <= 2
    assert [step.step for step in told.steps] == list(range(1, 13))
    # The version whose weights went with the lost one is not evaluated, but the one in use when the next was there.
    versions = [version for version, _, _ in evaluations(told)]
    assert versions[:2] == [0, 1]
    assert len(versions) == len(set(versions)) == 5


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("at_s", [0.5, 2.5, 5.25, 6.0, 7.5])
def test_whenever_it_is_lost_the_run_comes_to_the_same_end(k, at_s):
    settings = loop_settings(k=k, evaluate_every=4)
    script = Script(settings, num_steps=8, sampling_s=lambda group: 1.0 + group % 3, evaluating_s=2.0, most_restarts=1)
    told = play_with_loss(script, at_s=at_s)
    assert [step.version for step in told.steps] == list(range(1, 9))
    assert len({group for batch in ids(told) for group in batch}) == 16
    assert told.saved[-1].step == 8
    assert len(told.of(Restarted)) == 1


class _Publishing(Stage):
    """Its trainer takes a while to publish, and another generator is there before that."""

    async def publish_weights(self) -> Handover:
        await asyncio.sleep(20.0)
        return await super().publish_weights()


def test_a_generator_lost_before_a_resumed_run_has_pushed_decodes_nothing_under_a_version_that_is_not_its_own():
    state = LoopState(step=10, version=10, seq=5, evaluated=10)
    stage = _Publishing(Script(loop_settings(), num_steps=14, state=state, most_restarts=1))
    stage.loop.call_later(1.0, stage.lose)
    told = stage.play()
    assert min(group.first_version for batch in told.batches for group in batch) == 10
    assert len(told.of(Restarted)) == 1


def test_an_evaluation_begun_anew_has_kept_training_waiting_since_then():
    """Lost at 1 s of the base's evaluation, replaced at 6 s: the seconds before are booked as lost, and not twice."""
    told = play_with_loss(Script(loop_settings(k=0), num_steps=1, evaluating_s=3.0, most_restarts=1), at_s=1.0)
    assert evaluations(told)[0] == (0, 9.0, 3.0)


def test_a_synchronous_run_generates_nothing_beside_an_evaluation_that_is_begun_anew():
    stage = Stage(Script(loop_settings(k=0, evaluate_every=2), num_steps=2, evaluating_s=20.0, most_restarts=1))
    begun = []
    begin = stage.begin_evaluation
    stage.begin_evaluation = lambda requests: (begun.append(stage.orchestrator.census[Place.IN_FLIGHT]), begin(requests))  # type: ignore[assignment, func-returns-value, method-assign]
    stage.loop.call_later(25.0, stage.lose)
    told = stage.play()
    during = [census for census, entry in zip(told.censuses, told.events, strict=True) if isinstance(entry.event, Evaluated)]
    assert len(told.of(Restarted)) == 1
    assert len(begun) == len(during) + 1
    assert not any(census[Place.IN_FLIGHT] or census[Place.BUFFERED] for census in during)


class _Saving(Stage):
    """Its trainer takes 4 s to save."""

    async def save(self, folder: Path) -> tuple[Cost, ...]:
        await asyncio.sleep(4.0)
        return ()

    def commit(self, step: int, state: bytes) -> None:
        assert not self._is_lost, "a checkpoint was replaced while a new generator may be loading it"
        Stage.commit(self, step, state)


@pytest.mark.parametrize("at_s", [3.5, 5.5])
def test_no_checkpoint_is_replaced_while_a_new_generator_loads(at_s):
    stage = _Saving(Script(loop_settings(checkpoint_every=1), num_steps=3, most_restarts=1))
    stage.loop.call_later(at_s, stage.lose)
    assert [state.step for state in stage.play().saved] == [1, 2, 3]
    assert len(stage.told.of(Restarted)) == 1


def test_a_generator_that_is_lost_for_good_ends_the_run_with_its_last_step_saved_and_nothing_is_lost():
    settings = loop_settings(num_prompts=2, k=2)
    lost = Stage(Script(settings, num_steps=12, num_prompts=24, sampling_s=lambda group: 1.0 + group % 3))
    lost.loop.call_later(9.5, lost.lose)
    with pytest.raises(ScalerlError, match="the generator died too often"):
        lost.play()
    saved = lost.told.saved[-1]
    assert saved.step == len(lost.told.steps) == len(lost.told.batches) < 12
    resumed = play(Script(settings, num_steps=12, num_prompts=24, state=saved))
    prompts = [group.prompt.id for batch in (*lost.told.batches, *resumed.batches) for group in batch]
    assert sorted(prompts) == sorted(f"p{index}" for index in range(24))
