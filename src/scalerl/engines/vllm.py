"""vLLM, for models of real size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.core.errors import UsageError
from scalerl.engines import DecodeLoop, Engine

if TYPE_CHECKING:
    from scalerl.accounting.meter import Meter
    from scalerl.models._policy import Policy
    from scalerl.objective.length_controls import LengthControl


class Vllm(Engine):
    """Replicas of one vLLM engine behind the contract of the embedded one."""

    tensor_parallel: int = Field(default=1, gt=0)
    """Devices that share one replica."""

    def build(self, policy: Policy, *, control: LengthControl, completion_tokens: int, seed: int, meter: Meter) -> DecodeLoop:  # noqa: ARG002
        """Refused: a recipe can name this engine, but it does not run yet."""
        raise self.why_unusable()

    def why_unusable(self) -> UsageError:
        """It does not run yet."""
        return UsageError("the vLLM engine does not run yet", where="engine.type", remedy="choose 'embedded'")
