"""A small decoder built from its configuration with fresh weights, with a tokenizer that its task makes."""

from typing import Literal, Self

from pydantic import Field, model_validator

from scalerl.models import Model


class Config(Model):
    """A tiny Qwen3 or Llama: a warm start gives it something to improve on."""

    architecture: Literal["qwen3", "llama"] = "qwen3"
    hidden_size: int = Field(default=64, gt=0)
    num_layers: int = Field(default=2, gt=0)
    num_heads: int = Field(default=2, gt=0)
    num_kv_heads: int = Field(default=2, gt=0)
    """Grouped-query attention where this is less than `num_heads`."""
    intermediate_size: int = Field(default=256, gt=0)

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is no multiple of num_heads {self.num_heads}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is no multiple of num_kv_heads {self.num_kv_heads}")
        return self
