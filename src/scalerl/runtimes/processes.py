"""A process per role on one machine, weights through memory."""

from contextlib import AbstractAsyncContextManager

from pydantic import Field

from scalerl.core.clock import Clock
from scalerl.runtimes import Roles, Runtime, Setup


class Processes(Runtime):
    """Generator and trainer overlap."""

    heartbeat_timeout_s: float = Field(default=300.0, gt=0.0)
    """Seconds without a sign of life after which a role counts as lost; loading a large model is one long silence."""
    restarts: int = Field(default=3, ge=0)
    """Generators that may be lost and replaced before the run ends; a trainer cannot be replaced, for its state is gone with it."""

    def launch(self, setup: Setup, *, clock: Clock) -> AbstractAsyncContextManager[Roles]:
        """Start a process per role."""
        from scalerl.runtimes._processes import launched

        self.check_one_device_each()
        return launched(self, setup, clock=clock)
