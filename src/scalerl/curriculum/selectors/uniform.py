"""Every prompt once per epoch, in an order drawn from the seed and the epoch."""

from scalerl.curriculum.selectors import Selector


class Uniform(Selector):
    """All prompts, always; it has nothing to set."""
