"""Protobuf wire format, field by field, without copying.

The protobuf library copies every bytes field twice in each direction, once more for every message that it is nested in.
Tensors are nearly all of the traffic, so this module writes and reads their frames: the bytes are plain protobuf, and
tests compare them with the library in both directions.

A field is a tag (number and wire type) followed by a varint, eight bytes, or a length and that many bytes:
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import functools

from colonnade.common.errors import ContractError

Buffer = bytes | memoryview

VARINT, EIGHT_BYTES, LENGTH = 0, 1, 2
_MAX_VARINT_BYTES = 10
_MAX_FIELDS = 64  # of a message: more than any contract's


class WireError(Exception):
    """Malformed bytes; callers that know the sender convert it to a `ContractError`.

    Args:
        expected, got: as in `ContractError`.
        where: KIND or KIND.FIELD; a frame as a whole if left out.
    """

    def __init__(self, expected: str, got: str, where: str = "a frame") -> None:
        super().__init__(f"{where}: expected {expected}, got {got}")
        self.expected, self.got, self.where = expected, got, where

    def of(self, party: str) -> ContractError:
        """The same, with the sender's name."""
        kind, _, field = self.where.partition(".")
        return ContractError(party, kind, field, self.expected, self.got)


@functools.lru_cache(4096)  # sizes and tags recur from message to message
def varint(value: int) -> bytes:
    """A non-negative integer in groups of seven bits, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@functools.lru_cache(256)
def tag(number: int, wire_type: int) -> bytes:
    """A field's tag."""
    return varint(number << 3 | wire_type)


def nested(number: int, body: list[Buffer]) -> list[Buffer]:
    """A length-delimited field (message, string or bytes) with content `body`, not joined yet."""
    return [tag(number, LENGTH) + varint(sum(len(part) for part in body)), *body]


def read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """The integer at a position, and the position after it."""
    value = shift = 0
    for byte in view[at : at + _MAX_VARINT_BYTES]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < 1 << 64:
            return value, at
        shift += 7
    if shift < 7 * _MAX_VARINT_BYTES:
        raise WireError("a number", "the end of the frame")
    raise WireError("a number of at most 64 bits", "a longer one")


def read_fields(view: memoryview, most: int = _MAX_FIELDS) -> list[tuple[int, int, int | memoryview]]:
    """Every field of a message as (number, wire type, value): an int for varints, else a slice.

    Args:
        most: maximum fields, so that a megabyte of two-byte fields is refused after the first few.
    """
    fields: list[tuple[int, int, int | memoryview]] = []
    at, end = 0, len(view)
    while at < end:
        if len(fields) == most:
            raise WireError(f"at most {most} fields", "more")
        key = view[at]
        if key < 0x80:  # most numbers have one byte
            at += 1
        else:
            key, at = read_varint(view, at)
        number, wire_type = key >> 3, key & 7
        size = 8
        if wire_type in (VARINT, LENGTH):
            size, at = read_varint(view, at)
            if wire_type == VARINT:
                fields.append((number, wire_type, size))
                continue
        elif wire_type != EIGHT_BYTES:
            raise WireError("wire type 0, 1 or 2", f"{wire_type}")
        if at + size > end:
            raise WireError(f"{size} bytes more", f"{end - at}")
        fields.append((number, wire_type, view[at : at + size]))
        at += size
    return fields
