"""Weights on their way from trainer to generator: sealed bytes, in an anonymous file in memory or as a message.

    seal:  | version | bytes | crc32 | the tensors, one after the other          two seals a file: version % 2 says which

The file has no name, so nothing can be left behind, whatever is killed, and no limit of /dev/shm applies; it is handed to
both roles when they start and is gone with the last of them (docs/decisions/0006). Where the system has no such file, or
not enough memory for it, the same seal travels as a message.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.reduction import DupFd
from typing import Any, Self

from scalerl.core.errors import ScalerlError
from scalerl.runtimes._channel import RESUME

Part = memoryview
"""The bytes of one tensor."""

_SEAL = struct.Struct("<QQQ")
"""Version, bytes and checksum of what follows. Zero bytes: nothing whole lies here, as in a new file."""
_CONTENT = 64
"""Offset of the content behind a seal: tensors start on a cache line."""


class MemoryFile:
    """An anonymous file in memory; each process that it is passed to at its start holds it, and it ends with the last."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def create(cls) -> Self | None:
        """An empty file; None where the system has none of that kind."""
        return cls(os.memfd_create("scalerl-weights", os.MFD_CLOEXEC)) if hasattr(os, "memfd_create") else None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_received, (DupFd(self._descriptor),))

    def allocate(self, num_bytes: int) -> memoryview:
        """The file, grown to `num_bytes` that are really there: a page that cannot be had later would kill its writer.

        Raises:
            OSError: there is not enough memory.
        """
        os.posix_fallocate(self._descriptor, 0, num_bytes)
        return self.view(num_bytes)

    def view(self, num_bytes: int) -> memoryview:
        """The first `num_bytes` of the file, shared with everyone who holds it.

        Raises:
            ValueError: the file is smaller.
        """
        return memoryview(mmap.mmap(self._descriptor, num_bytes))

    def close(self) -> None:
        """Let go of the file; views of it stay."""
        os.close(self._descriptor)


def _received(descriptor: Any) -> MemoryFile:
    return MemoryFile(descriptor.detach())


class Outbox:
    """The trainer's end: seals each new version into the half that the last one does not use."""

    def __init__(self, file: MemoryFile | None, *, num_bytes: int) -> None:
        self._size = _CONTENT + num_bytes
        try:
            self._file = None if file is None else file.allocate(2 * _aligned(self._size))
        except OSError:
            self._file = None

    def put(self, version: int, parts: Sequence[Part]) -> bytearray | None:
        """Seal the tensors of `version`; returns the seal if it has to travel as a message."""
        if self._file is not None:
            seal(_half(self._file, version), version=version, parts=parts)
            return None
        message = bytearray(self._size)
        seal(memoryview(message), version=version, parts=parts)
        return message


class Inbox:
    """The generator's end."""

    def __init__(self, file: MemoryFile | None, *, num_bytes: int) -> None:
        self._source = file
        self._num_bytes = num_bytes
        self._file: memoryview | None = None

    @contextmanager
    def opened(self, version: int, message: bytearray | None) -> Iterator[memoryview]:
        """The bytes of all tensors of `version`, from the file or from the `message`; use them within the block.

        Raises:
            ScalerlError: they are of another version, not whole, or were overwritten during the block.
        """
        source = self._shared(version) if message is None else memoryview(message)
        yield unseal(source, version=version, num_bytes=self._num_bytes)
        if _SEAL.unpack_from(source)[0] != version:
            raise _spoilt(version, "were overwritten while they were read")

    def _shared(self, version: int) -> memoryview:
        assert self._source is not None, "without a file the weights come as a message"
        if self._file is None:
            self._file = self._source.view(2 * _aligned(_CONTENT + self._num_bytes))
        return _half(self._file, version)


def seal(target: memoryview, *, version: int, parts: Sequence[Part]) -> None:
    """Write the parts into `target`; a writer that dies on the way leaves a seal of zero bytes."""
    _SEAL.pack_into(target, 0, version, 0, 0)
    checksum, end = 0, _CONTENT
    for part in parts:
        start, end = end, end + part.nbytes
        target[start:end] = part
        checksum = zlib.crc32(part, checksum)
    _SEAL.pack_into(target, 0, version, end - _CONTENT, checksum)


def unseal(source: memoryview, *, version: int, num_bytes: int) -> memoryview:
    """The content of a seal.

    Raises:
        ScalerlError: its version, size or checksum is not what was asked for.
    """
    sealed_version, sealed_bytes, checksum = _SEAL.unpack_from(source)
    if sealed_version != version:
        raise _spoilt(version, f"are not there, but those of version {sealed_version}")
    if sealed_bytes != num_bytes:
        raise _spoilt(version, f"are {sealed_bytes} bytes where the model has {num_bytes}")
    content = source[_CONTENT : _CONTENT + num_bytes]
    if zlib.crc32(content) != checksum:
        raise _spoilt(version, "do not have the checksum that they were sent with")
    return content


def _half(file: memoryview, version: int) -> memoryview:
    size = len(file) // 2
    return file[version % 2 * size : (version % 2 + 1) * size]


def _aligned(size: int) -> int:
    return -(-size // _CONTENT) * _CONTENT


def _spoilt(version: int, how: str) -> ScalerlError:
    return ScalerlError(f"the weights of version {version} {how}", where="weight push", remedy=RESUME)
