"""The loop's parts by themselves: the age rule, the prompt queue, the times of evaluations, what is told of a push."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scalerl.curriculum.selectors.difficulty import Difficulty
from scalerl.curriculum.selectors.no_positive_resampling import NoPositiveResampling
from scalerl.curriculum.selectors.uniform import Uniform
from scalerl.pipeline.buffer import fits
from scalerl.pipeline.evaluation import is_due
from scalerl.pipeline.prompt_queue import PromptQueue, Turn
from scalerl.pipeline.telling import mismatch
from scalerl.records.roles import Handover
from scalerl.records.rollout import Prompt

PROMPTS = [Prompt(f"prompt-{index}", "task", "", (1,), "") for index in range(7)]


def schedulable(deadlines: tuple[int, ...], *, version: int, batch: int) -> bool:
    """The rule by its meaning: train `batch` groups of the earliest deadlines per later step, and see whether one is late."""
    left = sorted(deadlines)
    step = version
    while left:
        step += 1
        if left[0] < step:
            return False
        left = left[batch:]
    return True


def test_the_age_rule_is_that_of_a_schedule_tried_out():
    for number in range(5):
        for deadlines in combinations_with_replacement(range(9, 14), number):
            for batch in (1, 2, 3):
                assert fits(deadlines, version=10, batch=batch) == schedulable(deadlines, version=10, batch=batch)


def test_a_synchronous_step_leaves_nothing_behind():
    assert fits([], version=3, batch=4)
    assert not fits([3], version=3, batch=4)


def test_evaluations_are_log_spaced_early_and_regular_later():
    due = [step for step in range(101) if is_due(step, every_steps=20, early_growth=1.6)]
    assert due == [0, 1, 2, 4, 7, 12, 20, 32, 40, 60, 80, 100]
    assert [step for step in range(8) if is_due(step, every_steps=1, early_growth=1.6)] == list(range(8))
    dense = [step for step in range(101) if is_due(step, every_steps=20, early_growth=1.2)]
    assert dense == [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 48, 58, 70, 84]


def test_a_prompt_is_left_out_from_the_next_epoch_on():
    queue = PromptQueue(PROMPTS, NoPositiveResampling(threshold=0.9), seed=1)
    first = [queue.take() for _ in PROMPTS]
    for turn in first:
        assert turn is not None
        queue.settle(turn, counts=(8, 8) if turn.index == 3 else (7, 8))
    second = [queue.take() for _ in range(6)]
    assert {turn.epoch for turn in second if turn} == {1}
    assert sorted(turn.index for turn in second if turn) == [0, 1, 2, 4, 5, 6]
    assert queue.num_left_out() == 1


def test_a_prompt_outside_of_the_window_comes_again_after_its_rest():
    queue = PromptQueue(PROMPTS[:2], Difficulty(low=0.1, high=0.9, rest_epochs=2), seed=1)
    seen = []
    for _ in range(6):
        turn = queue.take()
        assert turn is not None
        seen.append((turn.index, turn.epoch))
        queue.settle(turn, counts=(0, 8) if turn.index == 0 else (4, 8))
    assert [epoch for index, epoch in seen if index == 0] == [0, 3]
    assert [epoch for index, epoch in seen if index == 1] == [0, 1, 2, 3]


def test_prompts_that_all_rest_are_waited_for_across_a_resume():
    queue = PromptQueue(PROMPTS[:2], Difficulty(rest_epochs=4), seed=1)
    for turn in taken(queue, 2):
        queue.settle(turn, counts=(0, 8))
    queue = PromptQueue(PROMPTS[:2], Difficulty(rest_epochs=4), seed=1, state=queue.state())
    assert queue.num_left_out() == 2
    assert {turn.epoch for turn in taken(queue, 2)} == {5}


def test_the_last_group_decides_and_a_failed_one_says_nothing():
    queue = PromptQueue(PROMPTS[:1], NoPositiveResampling(), seed=1)
    for counts in [(7, 8), None, (8, 8)]:
        turn = queue.take()
        assert turn is not None
        queue.settle(turn, counts=counts)
    assert queue.take() is None


def test_the_order_depends_on_seed_and_epoch():
    def order(seed: int) -> list[list[int]]:
        queue = PromptQueue(PROMPTS, Uniform(), seed=seed)
        taken = []
        for _ in range(14):
            turn = queue.take()
            assert turn is not None
            queue.settle(turn, counts=(0, 8))
            taken.append(turn.index)
        return [taken[:7], taken[7:]]

    assert order(1) == order(1)
    assert order(1)[0] != order(2)[0]
    assert order(1)[0] != order(1)[1]
    assert sorted(order(1)[0]) == sorted(order(1)[1]) == list(range(7))


@given(
    moves=st.lists(st.sampled_from(["take", "settle oldest", "settle newest", "give back", "resume"]), max_size=60),
    counts=st.sampled_from([(8, 8), (3, 8)]),
)
def test_an_epoch_settles_each_prompt_once_whatever_happens(moves, counts):
    """A resume hands out again what was not settled, and nothing else."""
    queue = PromptQueue(PROMPTS, Uniform(), seed=5)
    in_flight = []
    settled = []
    for move in moves:
        if move == "take":
            in_flight.append(queue.take())
        elif move == "resume":
            queue = PromptQueue(PROMPTS, Uniform(), seed=5, state=queue.state())
            in_flight = []
        elif in_flight and move == "give back":
            queue.give_back(in_flight.pop())
        elif in_flight:
            turn = in_flight.pop(0 if move == "settle oldest" else -1)
            queue.settle(turn, counts=counts)
            settled.append((turn.epoch, turn.index))
    while queue.state().epoch < 9:
        turn = queue.take()
        queue.settle(turn, counts=counts)
        settled.append((turn.epoch, turn.index))
    for turn in in_flight:
        settled.append((turn.epoch, turn.index))
    complete = [visit for visit in settled if visit[0] < 8]
    assert sorted(complete) == [(epoch, index) for epoch in range(8) for index in range(7)]


def taken(queue: PromptQueue, number: int) -> list[Turn]:
    turns = [queue.take() for _ in range(number)]
    return [turn for turn in turns if turn is not None]


def test_a3_what_was_buffered_at_the_crash_comes_first_after_the_resume():
    prompts = [Prompt(f"prompt-{index}", "task", "", (1,), "") for index in range(12)]
    queue = PromptQueue(prompts, Uniform(), seed=0)
    generated = taken(queue, 6)
    for turn in generated[:3]:
        queue.settle(turn, counts=(4, 8))
    resumed = PromptQueue(prompts, Uniform(), seed=0, state=queue.state())
    rest = taken(resumed, 9)
    assert rest[:3] == generated[3:]
    assert {turn.index for turn in [*generated[:3], *rest]} == set(range(12))
    assert {turn.epoch for turn in rest} == {0}


def test_a3_a_dropped_group_does_not_hold_the_others_back():
    prompts = [Prompt(f"prompt-{index}", "task", "", (1,), "") for index in range(12)]
    queue = PromptQueue(prompts, Uniform(), seed=0)
    generated = taken(queue, 8)
    for turn in generated:
        queue.settle(turn, counts=None if turn.place == 4 else (4, 8))
    resumed = PromptQueue(prompts, Uniform(), seed=0, state=queue.state())
    assert [turn.place for turn in taken(resumed, 4)] == [8, 9, 10, 11]
    # The epoch ended with the last prompt: the next one begins, and none is repeated.
    after = PromptQueue(prompts, Uniform(), seed=0, state=resumed.state())
    assert [(turn.epoch, turn.place) for turn in taken(after, 5)] == [(0, 8), (0, 9), (0, 10), (0, 11), (1, 0)]


def test_a6_what_is_left_out_stays_so_across_a_resume_and_an_empty_pool_ends():
    counts = [(9, 10), (8, 10), (10, 10), (15, 16), (7, 8)]
    queue = PromptQueue(PROMPTS[:5], NoPositiveResampling(threshold=0.9), seed=0)
    for turn in taken(queue, 5):
        queue.settle(turn, counts=counts[turn.index])
    resumed = PromptQueue(PROMPTS[:5], NoPositiveResampling(threshold=0.9), seed=0, state=queue.state())
    second = taken(resumed, 2)
    assert {turn.index for turn in second} == {1, 4}
    assert resumed.num_left_out() == 3
    for turn in second:
        resumed.settle(turn, counts=(10, 10))
    assert resumed.take() is None


def test_the_mismatch_of_a_push_is_none_where_it_is_not_finite():
    published, taken = (Handover(1, probe_log_probs=np.array(values, np.float32)) for values in ([-1.0, -2.0], [-1.5, -4.0]))
    assert mismatch(published, taken) == {"mismatch_mean": 1.25, "mismatch_max": 2.0}
    lost = Handover(1, probe_log_probs=np.array([-1.0, np.nan], np.float32))
    assert mismatch(published, lost) == {"mismatch_mean": None, "mismatch_max": None}
    assert mismatch(Handover(1), Handover(1)) == {}
