"""Folders that are on the disk as a whole, not only in the page cache, when a call returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from scalerl.core.errors import ScalerlError
from scalerl.core.files import sync


@contextmanager
def written(folder: Path) -> Iterator[None]:
    """Sync every file that the block wrote into `folder`, and the folder's own list of them.

    Raises:
        ScalerlError: the disk is full, or the folder may not be written to.
    """
    try:
        yield
        for path in (*sorted(folder.rglob("*")), folder):
            sync(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ScalerlError(
            f"the model cannot be written ({reason})", where=str(folder), remedy="make room, or choose a folder that may be written to"
        ) from None
