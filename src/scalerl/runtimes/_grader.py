"""The grader at work in the orchestrator's process: one completion after the other."""

from __future__ import annotations

import logging

from scalerl.core.clock import Clock
from scalerl.core.errors import UsageError
from scalerl.graders import Grader
from scalerl.records.cost import Activity, Cost
from scalerl.records.roles import Graded
from scalerl.records.rollout import Completion, Group, Outcome, Prompt, Score

_log = logging.getLogger(__name__)


class TaskGrader:
    """Grades with a task's grader. Its seconds are nobody's device: this process is no slot of the run."""

    def __init__(self, grader: Grader, *, clock: Clock) -> None:
        self._grader = grader
        self._clock = clock
        self._told_of_failure = False

    async def grade(self, group: Group) -> Graded:
        """One score per completion; it does not let go of the event loop, so that its seconds are grading alone.

        Raises:
            UsageError: the grader cannot work in this run at all.
        """
        started_s = self._clock.now_s()
        scores = tuple(self._score(group.prompt, completion) for completion in group.completions)
        seconds = self._clock.now_s() - started_s
        return Graded(scores, (Cost(None, Activity.GRADE, seconds, detail=self._grader.name()),))

    def _score(self, prompt: Prompt, completion: Completion) -> Score:
        try:
            return self._grader.grade(prompt, completion)
        except UsageError:
            raise
        except Exception as error:  # A failure of the grader is counted, never a zero for the policy.
            if not self._told_of_failure:
                self._told_of_failure = True
                _log.warning("grader '%s' failed on prompt '%s' (%s: %s)", self._grader.name(), prompt.id, type(error).__name__, error)
            return Score(None, None, Outcome.FAILED)
