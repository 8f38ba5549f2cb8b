"""Our own decode loop on the Hugging Face weights: CPU and CUDA, no server."""

from scalerl.engines import Engine


class Embedded(Engine):
    """The engine of the laptop scale and of the tests."""
