"""Selectors: which prompt comes next. The family's base.

An epoch visits every training prompt once, in an order drawn from the seed and the epoch, but for those left out.
"""

from scalerl.core.components import Component


class Selector(Component, family="selectors"):
    """A rule over the training prompts, epoch by epoch."""

    @property
    def longest_rest_epochs(self) -> int:
        """Epochs after which a prompt that was left out may come again; 0 if it never does."""
        return 0

    def leaves_out(self, num_passed: int, num_graded: int, *, epochs_ago: int = 1) -> bool:
        """Whether a prompt is not sampled in this epoch, given the counts of its last group, so many epochs ago.

        `num_graded` counts completions with a score; it may be 0.
        """
        return False
