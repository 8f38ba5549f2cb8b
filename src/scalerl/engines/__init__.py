"""Engines: what samples tokens. The family's base."""

from typing import Literal

from pydantic import Field

from scalerl.core.components import Component


class Engine(Component, family="engines"):
    """A generator that takes new weights while requests are in flight."""

    kv: Literal["keep", "reprefill", "drain"] = "keep"
    """What happens to the cache of a request in flight when weights change: keep it (stale, bounded by one completion), compute
    it anew with the new weights, or let the request finish first. New requests never see keys of older weights."""
    temperature: float = Field(default=1.0, gt=0.0)
    """Divides the logits on both sides; log-probs are those of the distribution that was sampled."""
    slots: int = Field(default=256, gt=0)
    """Completions decoded at once."""
