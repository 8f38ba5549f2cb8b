"""A grader that costs nothing and always tells completions apart: the share of one letter. For benchmarks of the rest."""

from scalerl.graders import Grader
from scalerl.records.rollout import Completion, Prompt, Score


class Letters(Grader):
    """How much of a completion is `letter`."""

    letter: str = "1"

    def grade(self, prompt: Prompt, completion: Completion) -> Score:  # noqa: ARG002  (no answer counts)
        """Its share of the characters; passed with more than a twentieth."""
        share = completion.text.count(self.letter) / len(completion.text)
        return Score(share, share > 0.05)
