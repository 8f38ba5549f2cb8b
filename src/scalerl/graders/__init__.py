"""Graders: from a completion to a score. The family's base.

A completion that could be graded has a value; one that could not because the grader failed has none, never zero.
"""

from scalerl.core.components import Component


class Grader(Component, family="graders"):
    """A judge of completions; what it costs is booked apart."""
