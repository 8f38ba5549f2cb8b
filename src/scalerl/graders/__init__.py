"""Graders: from a completion to a score. The family's base.

A completion that could be graded has a value; one that could not because the grader failed has none, never zero.
"""

from abc import abstractmethod

from scalerl.core.components import Component
from scalerl.records.rollout import Completion, Prompt, Score


class Grader(Component, family="graders"):
    """A judge of completions; what it costs is booked apart."""

    @abstractmethod
    def grade(self, prompt: Prompt, completion: Completion) -> Score:
        """The score of one completion.

        It blocks. Whatever it raises is a failure of the grader: the caller makes a score without a value of it.
        """

    def answer(self, completion: Completion) -> str | None:
        """What a completion answers, as text, for majority votes; None where it answers nothing.

        Equal answers count as one. Whole completions are compared unless a grader knows better.
        """
        return completion.text.strip() or None
