"""The answer equals the gold answer, character by character after stripping white space."""

from scalerl.graders import Grader


class Exact(Grader):
    """For tasks whose answers have one spelling; it has nothing to set."""
