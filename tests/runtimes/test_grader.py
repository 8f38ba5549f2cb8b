"""A grader's own failure is never a zero for the policy."""

from __future__ import annotations

import asyncio
import logging

import pytest

from scalerl.core.clock import ManualClock
from scalerl.core.errors import UsageError
from scalerl.graders import Grader
from scalerl.records.cost import Activity, Cost
from scalerl.records.roles import Graded
from scalerl.records.rollout import Completion, Outcome, Prompt, Score
from scalerl.runtimes._grader import TaskGrader
from tests.runtimes.fakes import finished_group, request

CLOCK = ManualClock()


class Moody(Grader):
    """Takes two seconds, and fails at the first completion of a group."""

    def grade(self, prompt: Prompt, completion: Completion) -> Score:
        CLOCK.advance(2.0)
        if completion.index == 0:
            raise ValueError("no mood")
        return Score(1.0, True)


class Unready(Grader):
    """Cannot work in any run."""

    def grade(self, prompt: Prompt, completion: Completion) -> Score:
        raise UsageError("it does not grade yet")


def graded(grader: TaskGrader) -> Graded:
    return asyncio.run(grader.grade(finished_group(request(0), 0)))


def test_its_failure_is_a_score_without_a_value_and_its_reason_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    grader = TaskGrader(Moody(), clock=CLOCK)
    with caplog.at_level(logging.WARNING):
        graded(grader)
        again = graded(grader)
    assert again.scores == (Score(None, None, Outcome.FAILED), Score(1.0, True))
    assert [record.getMessage() for record in caplog.records] == ["grader 'test_grader' failed on prompt 'p0' (ValueError: no mood)"]


def test_its_seconds_are_booked_on_no_device() -> None:
    assert graded(TaskGrader(Moody(), clock=CLOCK)).costs == (Cost(None, Activity.GRADE, 4.0, detail="test_grader"),)


def test_a_grader_that_cannot_work_at_all_ends_the_run() -> None:
    with pytest.raises(UsageError, match="does not grade yet"):
        graded(TaskGrader(Unready(), clock=CLOCK))
