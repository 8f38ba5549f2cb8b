"""Overlong: a completion that was cut off at its budget is not trained on (overlong filtering, DAPO, arXiv 2503.14476, section 3.4).

Its score says that it was too long, not that its tokens were wrong. It stays in the baseline of its group: without it the
others would look better than they are.
"""

from scalerl.curriculum.filters import Filter
from scalerl.records.rollout import Completion


class Overlong(Filter):
    """Completions that did not stop by themselves leave the loss AND the denominators."""

    def masks(self, completion: Completion) -> bool:
        """Whether its budget ended it; one that an interruption brought to an answer has finished."""
        return not completion.finished
