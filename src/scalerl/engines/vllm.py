"""vLLM, for models of real size."""

from pydantic import Field

from scalerl.engines import Engine


class Vllm(Engine):
    """Replicas of one vLLM engine behind the contract of the embedded one."""

    tensor_parallel: int = Field(default=1, gt=0)
    """Devices that share one replica."""
