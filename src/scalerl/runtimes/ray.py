"""Actors on a Ray cluster."""

from pydantic import Field

from scalerl.runtimes import Runtime


class Ray(Runtime):
    """Many machines."""

    address: str | None = Field(default=None)
    """Address of the cluster; without it a local one is started."""
