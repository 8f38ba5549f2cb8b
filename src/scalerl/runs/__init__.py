"""Runs: the folder that a run lives in, what it holds, and who may write to it."""

from scalerl.runs.directory import RunDirectory
from scalerl.runs.manifest import Manifest

__all__ = ["Manifest", "RunDirectory"]
