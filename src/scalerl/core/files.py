"""Writing files so that a reader, or a run after a crash, sees all of one or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from scalerl.core.errors import ScalerlError


def sync(path: Path) -> None:
    """Return when a file, or a folder's list of files, is on the disk.

    Raises:
        OSError: it is not there, or the disk is full.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a temporary file beside `path`, sync it and rename it to `path`.

    Raises:
        ScalerlError: the folder is missing or read-only, or the disk is full; `path` is as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise ScalerlError(
            f"the file cannot be written ({error.strerror or error})",
            where=str(path),
            remedy="choose a folder that exists, has room and may be written to",
        ) from None
