"""The scorer that a data set of reasoning-gym brings: many answers may be right, and some are partly so.

    value = score_answer(answer, entry) in [0, 1]      passed = value >= 1      answer = the completion without outer white space

Some of the scorers (spiral_matrix, n_queens, countdown, the integrals ...) evaluate an answer as Python: train on those sets
only models whose output you would run.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from scalerl.core.errors import UsageError
from scalerl.graders import Grader
from scalerl.graders._reasoning_gym import DataSet
from scalerl.records.rollout import Completion, Outcome, Prompt, Score

_UNREADABLE = (ArithmeticError, LookupError, SyntaxError, TypeError, ValueError)
"""What scorers raise on an answer that they cannot read: the answer's fault, or gibberish would leave the loss unpunished."""


class ReasoningGym(Grader):
    """Grades the prompts of the task `reasoning_gym` that has the same settings."""

    dataset: str = Field(min_length=1, examples=["basic_arithmetic"])
    """Name of the data set."""
    parameters: dict[str, JsonValue] = {}
    """The data set's own parameters."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the prompts."""

    def grade(self, prompt: Prompt, completion: Completion) -> Score:
        """The set's own score; an answer counts only in a completion that stopped by itself.

        Raises:
            UsageError: the prompt is none of this data set.
        """
        number = self._number(prompt)
        answer = self.answer(completion)
        if answer is None:
            return Score(0.0, False, Outcome.UNPARSED if completion.finished else Outcome.CUT_OFF)
        try:
            value = self._data_set.score(answer, number)
        except _UNREADABLE:
            return Score(0.0, False, Outcome.UNPARSED)
        return Score(value, value >= 1.0)

    def answer(self, completion: Completion) -> str | None:
        """The whole of a completion that stopped by itself."""
        return super().answer(completion) if completion.finished else None

    @property
    def _data_set(self) -> DataSet:
        return DataSet.of(self.dataset, self.parameters, seed=self.data_seed)

    def _number(self, prompt: Prompt) -> int:
        """Which entry the prompt is: its id says so, and its answer must agree."""
        digits = prompt.id.rpartition("-")[2]
        if not digits.isdecimal() or self._data_set.entry(int(digits))["answer"] != prompt.answer:
            raise UsageError(
                f"the prompt '{prompt.id}' is none of the data set '{self.dataset}' with these parameters and this seed",
                where=f"grader '{self.name()}'",
                remedy="use the task 'reasoning_gym', which brings this grader",
            )
        return int(digits)
