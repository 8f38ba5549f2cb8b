"""Actors on a Ray cluster."""

from contextlib import AbstractAsyncContextManager

from pydantic import Field

from scalerl.core.clock import Clock
from scalerl.core.errors import UsageError
from scalerl.runtimes import Roles, Runtime, Setup


class Ray(Runtime):
    """Many machines."""

    address: str | None = Field(default=None)
    """Address of the cluster; without it a local one is started."""

    def launch(self, setup: Setup, *, clock: Clock) -> AbstractAsyncContextManager[Roles]:  # noqa: ARG002
        """Refuse: it can be described and planned, not run."""
        raise self.why_unusable()

    def why_unusable(self) -> UsageError:
        """It does not run yet."""
        return UsageError("the ray runtime does not run yet", where="runtime.type", remedy="choose 'processes'")
