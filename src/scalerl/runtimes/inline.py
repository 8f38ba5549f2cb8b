"""All roles in one process that take turns: for tests, and for machines of one core."""

from scalerl.runtimes import Runtime


class Inline(Runtime):
    """Nothing overlaps; everything repeats bit for bit."""
