"""Length control: what keeps completions from growing without bound. The family's base."""

from scalerl.core.components import Component


class LengthControl(Component, family="length_controls"):
    """A rule that bounds thinking, by cutting into it or by paying for brevity."""

    @property
    def least_completion_tokens(self) -> int:
        """Smallest `length.completion_tokens` that leaves room for what the rule does."""
        return 0
