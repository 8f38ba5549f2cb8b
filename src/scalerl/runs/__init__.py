"""Runs: the folder that a run lives in, what it holds, who may write to it, and how it is started and gone on with."""

from scalerl.runs.directory import RunDirectory
from scalerl.runs.manifest import Manifest

__all__ = ["Manifest", "RunDirectory"]
