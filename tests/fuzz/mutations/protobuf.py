"""Mutations that know protobuf: fields, lengths, nesting. The lengths around a changed field are mended."""

from __future__ import annotations

import struct
from functools import lru_cache
from random import Random
from typing import NamedTuple

from colonnade.common.wire.codec import LENGTH, VARINT, WireError, read_fields, read_varint, varint
from tests.fuzz.mutations.plain import LONGEST, mutate_bytes


class _Field(NamedTuple):
    """Where a field lies, and the fields around it as (begin of the length, begin of the value, end)."""

    start: int
    value: int
    end: int
    number: int
    wire_type: int
    around: tuple[tuple[int, int, int], ...]


_DEEPEST = 6

_NUMBERS = (
    0, 1, 2, 3, 5, 7, 8, 16, 127, 128, 255, 256, 300, 1 << 14, (1 << 16) - 1, 1 << 16, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
_DOUBLES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    5e-324,
    1.8e308,
    3.4028234e38,
    3.5e38,
    -3.5e38,
)
_SHAPES = (
    (1 << 32,),
    (1 << 16, 1 << 16),
    (1 << 63, 2),
    (0, 1 << 40),
    (1 << 32, 0),
    (1,) * 9,
    (0,),
    (),
    ((1 << 64) - 1,),
)
_TEXTS = (b"", b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[2J", "é".encode(), b"\0", b"%s%n", b"x" * 2000, "\u202e".encode())


def mutate_protobuf(rng: Random, data: bytes, other: bytes) -> bytes:
    """A change of a field, of bytes, or of both."""
    kind = rng.random()
    if kind < 0.35:
        return mutate_bytes(rng, data, other)
    for _ in range(1 + int(rng.random() ** 8 * 4)):
        data = _change_field(rng, data, other)
    return mutate_bytes(rng, data, other) if kind > 0.9 else data[:LONGEST]


def _change_field(rng: Random, data: bytes, other: bytes) -> bytes:
    fields = _fields_of(data)
    if not fields:
        return mutate_bytes(rng, data, other)
    field = fields[int(rng.random() * len(fields))]
    old = data[field.start : field.end]
    how = int(rng.random() * 12)
    if how == 0:
        new = b""
    elif how == 1:
        new = old * (2 if rng.random() < 0.9 else int(rng.random() * 600))
    elif how == 2:
        theirs = _fields_of(other)
        if not theirs:
            return mutate_bytes(rng, data, other)
        taken = theirs[int(rng.random() * len(theirs))]
        new = other[taken.start : taken.end] + (old if rng.random() < 0.5 else b"")
    elif how == 3:  # a number of another field, or of none
        new = _tag(int(rng.random() * 18), field.wire_type) + data[_after_tag(data, field) : field.end]
    elif how == 4:
        new = _tag(field.number, int(rng.random() * 8)) + data[_after_tag(data, field) : field.end]
    elif how == 5 and field.wire_type == LENGTH:  # a length that is a lie
        lie = max(0, field.end - field.value + int(rng.random() * 7) - 3) if rng.random() < 0.5 else _number(rng)
        new = _tag(field.number, LENGTH) + varint(lie) + data[field.value : field.end]
    elif how == 6:  # in itself, many times
        new = old
        for _ in range(int(rng.random() ** 3 * 120) + 1):
            new = _tag(field.number, LENGTH) + varint(len(new)) + new
    elif how == 7:
        new = old + _tag(int(rng.random() * 40), VARINT) + varint(_number(rng))
    else:
        new = _other_value(rng, field, data[field.value : field.end], other)
    return _replaced(data, field, new)


def _other_value(rng: Random, field: _Field, value: bytes, other: bytes) -> bytes:
    """The field with another value of its type, or of another."""
    wire_type = field.wire_type if rng.random() < 0.9 else int(rng.random() * 3)
    if wire_type == VARINT:
        return _tag(field.number, VARINT) + varint(_number(rng))
    if wire_type != LENGTH:
        double = _DOUBLES[int(rng.random() * len(_DOUBLES))]
        return _tag(field.number, 1) + struct.pack("<d", double)
    how = rng.random()
    if how < 0.25:
        shape = _SHAPES[int(rng.random() * len(_SHAPES))]
        content = b"".join(map(varint, shape))
    elif how < 0.35:
        content = _TEXTS[int(rng.random() * len(_TEXTS))]
    elif how < 0.45:
        content = value + b"\0" * int(rng.random() ** 2 * 64)
    elif how < 0.55:
        content = struct.pack("<f", _DOUBLES[4 + int(rng.random() * 3)]) * (len(value) // 4)
    else:
        content = mutate_bytes(rng, value, other)
    return _tag(field.number, LENGTH) + varint(len(content)) + content


def _number(rng: Random) -> int:
    return _NUMBERS[int(rng.random() * len(_NUMBERS))]


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def _after_tag(data: bytes, field: _Field) -> int:
    return read_varint(memoryview(data), field.start)[1]


def _replaced(data: bytes, field: _Field, new: bytes) -> bytes:
    """The data with another encoding in the place of a field, and the lengths around it as they have to be."""
    start, end = field.start, field.end
    for length_at, begin, stop in reversed(field.around):
        new = data[begin:start] + new + data[end:stop]
        new = varint(len(new)) + new
        start, end = length_at, stop
    return data[:start] + new + data[end:]


@lru_cache(4096)
def _fields_of(data: bytes) -> tuple[_Field, ...]:
    """All fields at all depths; bytes that could be a message count as one."""
    found: list[_Field] = []
    _collect(memoryview(data), 0, len(data), (), found)
    return tuple(found)


def _collect(
    view: memoryview, start: int, end: int, around: tuple[tuple[int, int, int], ...], found: list[_Field]
) -> bool:
    try:
        fields = read_fields(view[start:end], 512)
    except WireError:
        return False
    at = start
    for number, wire_type, value in fields:
        begin = read_varint(view, at)[1]
        length_at = begin
        if wire_type == LENGTH:
            size, begin = read_varint(view, begin)
            stop = begin + size
        else:
            stop = read_varint(view, begin)[1] if isinstance(value, int) else begin + 8
        found.append(_Field(at, begin, stop, number, wire_type, around))
        if wire_type == LENGTH and begin < stop and len(around) < _DEEPEST:
            _collect(view, begin, stop, (*around, (length_at, begin, stop)), found)
        at = stop
    return True
