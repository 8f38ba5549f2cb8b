"""The answer equals the gold answer, character by character after stripping white space.

answer = what follows the last `after` of the completion; the whole of it where `after` is empty
"""

from __future__ import annotations

from scalerl.graders import Grader
from scalerl.records.rollout import Completion, Outcome, Prompt, Score


class Exact(Grader):
    """For tasks whose answers have one spelling: 1 for it, 0 for another, for none, and for a completion that was cut off."""

    after: str = ""
    """The answer stands after the last occurrence of this, e.g. `=`."""

    def grade(self, prompt: Prompt, completion: Completion) -> Score:
        """1 and passed, or 0 and not; an answer counts only in a completion that stopped by itself."""
        answer = self.answer(completion)
        if answer is None:
            return Score(0.0, False, Outcome.UNPARSED if completion.finished else Outcome.CUT_OFF)
        passed = answer == prompt.answer.strip()
        return Score(float(passed), passed)

    def answer(self, completion: Completion) -> str | None:
        """What stands after the last `after` of a completion that stopped by itself."""
        _, marker, rest = completion.text.rpartition(self.after) if self.after else ("", "", completion.text)
        return rest.strip() or None if completion.finished and marker == self.after else None
