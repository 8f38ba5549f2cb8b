"""Runtimes: where the roles of a run live. The family's base."""

from pydantic import Field

from scalerl.core.components import Component


class Runtime(Component, family="runtimes"):
    """A device is a slot declared here: the ledger books every second of every slot."""

    generator_devices: int = Field(default=1, gt=0)
    trainer_devices: int = Field(default=1, gt=0)
    usd_per_device_hour: float | None = Field(default=None, ge=0.0)
    """Price of one device for one hour; without it no dollars are booked."""
