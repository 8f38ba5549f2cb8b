"""Models: Hugging Face causal language models, loaded or built. The family's base."""

from typing import Literal

from scalerl.core.components import Component


class Model(Component, family="models"):
    """The policy; generator and trainer use the same weights and the same head precision."""

    head: Literal["fp32", "body"] = "fp32"
    """Precision of the matmul that makes logits, on BOTH sides: fp32 (arXiv 2510.13786), or that of the body."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Precision of the body."""
