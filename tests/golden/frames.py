"""Messages of a capture, read by proto/tensor.proto and proto/federation.proto alone: no code of ours decodes them.

A record of a capture: the way (a byte, 0 out, 1 in), the session (four), the frame's length (eight), and the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct("<BIQ")
_PARCELS, _LETTER = 2, 7  # of Frame, of Parcel
_DTYPES = ("", "float16", "float32", "float64", "int32", "int64", "uint8")
_VARINT, _EIGHT, _LENGTH = 0, 1, 2


class Letter(NamedTuple):
    """A message as it went over the wire.

    Attributes:
        way: "out" from the party, or "in".
        kind: the message's name.
        tensors: of each field that is one, by its number: dtype and shape, and how it is packed.
        size: bytes of the body.
        floats: the bytes of all floating-point tensors, one after the other; sealed and masked ones are integers.
    """

    way: str
    kind: str
    tensors: dict[int, str]
    size: int
    floats: bytes


def letters(path: Path) -> Iterator[Letter]:
    """All of a capture file, in its order."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        way, _, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        for parcel in _all(data[at : at + size], _PARCELS):
            for letter in _all(parcel, _LETTER):
                yield _letter("in" if way else "out", letter)
        at += size


def _letter(way: str, letter: bytes) -> Letter:
    (kind,), (body,) = _all(letter, 1), _all(letter, 2) or [b""]
    tensors, floats = {}, b""
    for number, _, value in _fields(body):
        if isinstance(value, bytes) and (said := _tensor(value)):
            tensors[number], numbers = said
            floats += numbers
    return Letter(way, kind.decode(), tensors, len(body), floats)


def _tensor(body: bytes) -> tuple[str, bytes] | None:
    """How a tensor is described, and its bytes if they are of fractions; None for a field that is none."""
    try:
        found: dict[int, object] = {number: value for number, _, value in _fields(body)}
        dtype = _DTYPES[int(str(found[1]))]
    except (IndexError, KeyError, ValueError):
        return None  # text
    packed = "".join(f" {name} {found[number]}" for number, name in ((4, "bits"), (7, "form")) if number in found)
    shape = list(_varints(found.get(2, b"")))
    return f"{dtype} {shape}{packed}", body if dtype.startswith("float") else b""


def _all(body: bytes, number: int) -> list[bytes]:
    return [value for found, _, value in _fields(body) if found == number and isinstance(value, bytes)]


def _fields(body: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and value of every field. Raises ValueError: these bytes are no message."""
    at = 0
    while at < len(body):
        key, at = _varint(body, at)
        number, wire, size = key >> 3, key & 7, 8
        if wire in (_VARINT, _LENGTH):
            size, at = _varint(body, at)
        elif wire != _EIGHT:
            raise ValueError(wire)
        if wire == _VARINT:
            yield number, wire, size
            continue
        if at + size > len(body):
            raise ValueError(size)
        yield number, wire, body[at : at + size]
        at += size


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(body):
            raise ValueError("ends early")
        value |= (body[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if body[at - 1] < 128:
            return value, at


def _varints(body: object) -> Iterator[int]:
    at = 0
    while isinstance(body, bytes) and at < len(body):
        value, at = _varint(body, at)
        yield value
