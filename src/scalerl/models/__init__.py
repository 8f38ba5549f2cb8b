"""Models: Hugging Face causal language models, loaded or built. The family's base."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal

from scalerl.core.components import Component

if TYPE_CHECKING:
    from scalerl.models._policy import Policy


class Model(Component, family="models"):
    """The policy; generator and trainer use the same weights and the same head precision."""

    head: Literal["fp32", "body"] = "fp32"
    """Precision of the matmul that makes logits, on BOTH sides: fp32 (arXiv 2510.13786), or that of the body."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Precision of the body."""

    @abstractmethod
    def build(self, *, alphabet: str | None, seed: int) -> Policy:
        """The policy that a run starts from, before any warm start, with its tokenizer.

        Args:
            alphabet: the characters of a tokenizer made for the task; only a model that brings none needs it.
            seed: of fresh weights.

        Raises:
            ScalerlError: the checkpoint is missing or foreign, or the model needs more memory than there is.
        """
