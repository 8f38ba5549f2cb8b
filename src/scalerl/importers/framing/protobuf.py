"""Protocol Buffers without schemas: walk a message field by field, by the wire format alone.

    https://protobuf.dev/programming-guides/encoding

A field is known by its *tag*: number << 3 | wire type. Who knows the schema names the tags it wants and ignores the others;
a field of an unexpected wire type has another tag and is ignored like an unknown one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_LONGEST_VARINT = 10


class MalformedError(ValueError):
    """The bytes are no message; readers count such records, so it reaches no user."""


def tag_of(number: int, wire_type: int) -> int:
    """The tag that a field starts with."""
    return number << 3 | wire_type


def fields(message: bytes, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, int]]:
    """(tag, start, stop) of each field in `message[start:stop]`: where its value lies, without tag and length.

    Raises:
        MalformedError: a field runs over the end, or has a wire type that nobody writes.
    """
    position, stop = start, len(message) if stop is None else stop
    while position < stop:
        tag, start = message[position], position + 1
        if tag > 0x7F:  # few numbers are above 15
            tag, start = varint(message, position)
        wire_type = tag & 7
        if wire_type == BYTES:
            length, start = varint(message, start)
            position = start + length
        elif wire_type == VARINT:
            _, position = varint(message, start)
        elif wire_type in _FIXED_BYTES:
            position = start + _FIXED_BYTES[wire_type]
        else:
            raise MalformedError
        if position > stop:
            raise MalformedError
        yield tag, start, position


def varint(message: bytes, position: int) -> tuple[int, int]:
    """The unsigned number at `position`, seven bits a byte and the lowest first, and the position behind it.

    Raises:
        MalformedError: it does not end.
    """
    content = message[position : position + _LONGEST_VARINT]
    if content and content[0] < 0x80:  # nearly all are one byte
        return content[0], position + 1
    value = 0
    for place, byte in enumerate(content):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, position + place + 1
    raise MalformedError


def signed(value: int) -> int:
    """An int64 from the varint that carries its two's complement."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value


def encoded(number: int, value: int | float | str | bytes) -> bytes:
    """One field: an int as varint, a float as double, text and bytes (a message, too) with their length."""
    if isinstance(value, int):
        return _encoded_varint(tag_of(number, VARINT)) + _encoded_varint(value)
    if isinstance(value, float):
        return _encoded_varint(tag_of(number, FIXED64)) + struct.pack("<d", value)
    content = value.encode() if isinstance(value, str) else value
    return _encoded_varint(tag_of(number, BYTES)) + _encoded_varint(len(content)) + content


def _encoded_varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*content, value])
