"""A checkpoint folder or a name on the hub, as AutoModelForCausalLM loads it, with its own tokenizer and chat template."""

from pydantic import Field

from scalerl.models import Model


class Checkpoint(Model):
    """Pretrained weights."""

    path: str = Field(min_length=1, examples=["checkpoints/8b-sft"])
    """A local folder, or a name on the hub."""
    trust_remote_code: bool = False
    """Whether code that lies beside the weights may run; a decision of its own, never a default."""
