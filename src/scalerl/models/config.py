"""A small decoder built from its configuration with fresh weights, with a tokenizer that its task makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from scalerl.models import Model

if TYPE_CHECKING:
    from scalerl.models._policy import Policy


class Config(Model):
    """A tiny Qwen3 or Llama: a warm start gives it something to improve on."""

    architecture: Literal["qwen3", "llama"] = "qwen3"
    hidden_size: int = Field(default=64, gt=0)
    num_layers: int = Field(default=2, gt=0)
    num_heads: int = Field(default=2, gt=0)
    num_kv_heads: int = Field(default=2, gt=0)
    """Grouped-query attention where this is less than `num_heads`."""
    intermediate_size: int = Field(default=256, gt=0)
    rope_theta: float = Field(default=10000.0, gt=1.0)
    """Base of the rotary wavelengths; small for short sequences, where long waves tell no positions apart."""
    max_tokens: int = Field(default=4096, gt=0)
    """Longest sequence, prompt included, that the configuration promises."""

    def build(self, *, alphabet: str | None, seed: int) -> Policy:
        """Fresh weights, and a tokenizer of the task's characters, or of bytes where the task has none."""
        from scalerl.models._fresh import fresh_policy

        return fresh_policy(self, alphabet=alphabet, seed=seed)

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is no multiple of num_heads {self.num_heads}")
        if self.hidden_size // self.num_heads % 2:
            raise ValueError(f"a head of {self.hidden_size} / {self.num_heads} channels is odd: rotary positions turn pairs of them")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is no multiple of num_kv_heads {self.num_kv_heads}")
        return self
