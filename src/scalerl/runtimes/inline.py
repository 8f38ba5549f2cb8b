"""All roles in one process that take turns: for tests, and for machines of one core."""

from contextlib import AbstractAsyncContextManager

from scalerl.core.clock import Clock
from scalerl.runtimes import Roles, Runtime, Setup


class Inline(Runtime):
    """Nothing overlaps; everything repeats bit for bit."""

    def launch(self, setup: Setup, *, clock: Clock) -> AbstractAsyncContextManager[Roles]:
        """Build the roles in this process."""
        from scalerl.runtimes._inline import launched

        self.check_one_device_each()
        return launched(self, setup, clock=clock)
