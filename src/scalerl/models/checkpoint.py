"""A checkpoint folder or a name on the hub, as AutoModelForCausalLM loads it, with its own tokenizer and chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from scalerl.models import Model

if TYPE_CHECKING:
    from scalerl.models._policy import Policy


class Checkpoint(Model):
    """Pretrained weights."""

    path: str = Field(min_length=1, examples=["checkpoints/8b-sft"])
    """A local folder, or a name on the hub."""
    trust_remote_code: bool = False
    """Whether code that lies beside the weights may run; a decision of its own, never a default."""

    def build(self, *, alphabet: str | None, seed: int) -> Policy:  # noqa: ARG002  (it brings its own of both)
        """The checkpoint's weights and tokenizer."""
        from scalerl.models._policy import Policy

        return Policy.load(self.path, head=self.head, dtype=self.dtype, trust_remote_code=self.trust_remote_code)
