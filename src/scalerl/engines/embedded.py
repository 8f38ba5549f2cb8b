"""Our own decode loop on the Hugging Face weights, where they lie: no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalerl.engines import DecodeLoop, Engine

if TYPE_CHECKING:
    from scalerl.accounting.meter import Meter
    from scalerl.models._policy import Policy
    from scalerl.objective.length_controls import LengthControl


class Embedded(Engine):
    """The engine of the laptop scale and of the tests."""

    def build(self, policy: Policy, *, control: LengthControl, completion_tokens: int, seed: int, meter: Meter) -> DecodeLoop:
        """The loop on `policy`, which it must not share with a trainer: weights change at pushes only.

        Raises:
            UsageError: the phrase of an interruption leaves no room for an answer, or the model attends to a window only.
        """
        from scalerl.engines._embedded import EmbeddedLoop

        return EmbeddedLoop(self, policy, control=control, completion_tokens=completion_tokens, seed=seed, meter=meter)
