"""A push is whole or an error: by version, size and checksum, in memory and as a message."""

from __future__ import annotations

import os
import resource

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalerl.core.errors import ScalerlError
from scalerl.runtimes._tensors import num_bytes, pack, unpack
from scalerl.runtimes._weights import Inbox, MemoryFile, Outbox, seal, unseal

parts_of_weights = st.lists(st.binary(max_size=100), max_size=5)


def size(parts: list[bytes]) -> int:
    return sum(map(len, parts))


def views(parts: list[bytes]) -> list[memoryview]:
    return [memoryview(part) for part in parts]


@pytest.fixture
def file():
    file = MemoryFile.create()
    assert file is not None
    yield file
    file.close()


@given(parts_of_weights, st.integers(0, 2**40))
def test_what_is_sealed_comes_out_in_order(parts: list[bytes], version: int) -> None:
    target = memoryview(bytearray(64 + size(parts)))
    seal(target, version=version, parts=views(parts))
    assert bytes(unseal(target, version=version, num_bytes=size(parts))) == b"".join(parts)


@given(st.binary(min_size=1, max_size=50), st.data())
def test_any_changed_byte_is_noticed(content: bytes, data: st.DataObject) -> None:
    target = bytearray(64 + len(content))
    seal(memoryview(target), version=7, parts=[memoryview(content)])
    place = data.draw(st.sampled_from([*range(24), *range(64, len(target))]))
    target[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ScalerlError, match=r"the weights of version 7 .*--resume"):
        unseal(memoryview(target), version=7, num_bytes=len(content))


def test_two_versions_lie_in_the_file_and_the_one_before_them_is_gone(file: MemoryFile) -> None:
    outbox, inbox = Outbox(file, num_bytes=3), Inbox(file, num_bytes=3)
    for version, content in enumerate([b"old", b"two", b"new"]):
        assert outbox.put(version, [memoryview(content)]) is None
    for version, content in [(1, b"two"), (2, b"new")]:
        with inbox.opened(version, None) as found:
            assert bytes(found) == content
    with pytest.raises(ScalerlError, match="version 0 are not there, but those of version 2"), inbox.opened(0, None):
        pass


def test_weights_overwritten_while_they_are_read_are_an_error(file: MemoryFile) -> None:
    outbox, inbox = Outbox(file, num_bytes=3), Inbox(file, num_bytes=3)
    outbox.put(1, [memoryview(b"one")])
    with pytest.raises(ScalerlError, match="version 1 were overwritten"), inbox.opened(1, None):
        outbox.put(3, [memoryview(b"new")])


def test_a_writer_that_dies_on_the_way_leaves_nothing_that_can_be_used(file: MemoryFile) -> None:
    outbox, inbox = Outbox(file, num_bytes=6), Inbox(file, num_bytes=6)

    def parts():
        yield memoryview(b"one")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outbox.put(1, parts())
    with pytest.raises(ScalerlError, match="version 1 are 0 bytes where the model has 6"), inbox.opened(1, None):
        pass


@pytest.mark.parametrize("lacks", ["such files", "room for the file"])
def test_without_an_anonymous_file_the_weights_travel_as_a_message(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lacks == "such files":
        monkeypatch.delattr(os, "memfd_create")
    file = MemoryFile.create()
    assert (file is None) == (lacks == "such files")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        outbox = Outbox(file, num_bytes=100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    message = outbox.put(5, [memoryview(b"new" + bytes(97))])
    with Inbox(file, num_bytes=100).opened(5, message) as found:
        assert bytes(found) == b"new" + bytes(97)
    if file is not None:
        file.close()


def test_tensors_of_any_type_and_shape_come_out_bit_for_bit() -> None:
    before = {
        "odd": torch.arange(3, dtype=torch.bfloat16),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "scalar": torch.tensor(0.5, dtype=torch.float64),
        "empty": torch.zeros(0),
        "grad": torch.randn(2, 2, generator=torch.Generator().manual_seed(0), requires_grad=True),
    }
    target = memoryview(bytearray(64 + num_bytes(before)))
    seal(target, version=0, parts=pack(before))
    after = unpack(unseal(target, version=0, num_bytes=num_bytes(before)), like=before)
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name
        assert after[name].dtype == tensor.dtype
