"""No control: a completion ends with its budget, and one that did not answer in time scores the task's minimum."""

from scalerl.objective.length_controls import LengthControl


class Truncation(LengthControl):
    """Nothing but the completion's budget; it has nothing to set."""
