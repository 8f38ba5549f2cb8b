"""Our own decode loop on the Hugging Face weights, where they lie: no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.core.components import Settings
from scalerl.engines import DecodeLoop, Engine

if TYPE_CHECKING:
    from scalerl.accounting.meter import Meter
    from scalerl.models._policy import Policy
    from scalerl.objective.length_controls import LengthControl


class Drift(Settings):
    """The probe of what a kept cache changes in log-probs; it measures where weights change in flight, and never with `drain`."""

    rows: int = Field(default=8, ge=0)
    """Completions followed at once; 0 turns the probe off."""
    share: float = Field(default=0.02, ge=0.0, le=1.0)
    """Of the time of generation: while the probe has taken more, it chooses no new completions."""


class Embedded(Engine):
    """The engine of the laptop scale and of the tests."""

    drift: Drift = Drift()

    def build(
        self,
        policy: Policy,
        *,
        control: LengthControl,
        completion_tokens: int,
        seed: int,
        meter: Meter,
        prompt_tokens: int | None = None,  # noqa: ARG002  its cache grows with what comes
    ) -> DecodeLoop:
        """The loop on `policy`, which it must not share with a trainer: weights change at pushes only.

        Raises:
            UsageError: the phrase of an interruption leaves no room for an answer, or the model attends to a window only.
        """
        from scalerl.engines._embedded import EmbeddedLoop

        return EmbeddedLoop(self, policy, control=control, completion_tokens=completion_tokens, seed=seed, meter=meter)
