"""Mutations of PEM: of the bytes within, with lengths of ASN.1 as they have to be or as lies, or of the text."""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from random import Random

from tests.fuzz.mutations.plain import mutate_bytes

_BEGIN, _END = b"-----BEGIN ", b"-----END "


def mutate_pem(rng: Random, data: bytes, other: bytes) -> bytes:
    """A change of the content of PEM, or of bytes of another kind."""
    label, content = _parts(data)
    if not label or rng.random() < 0.15:
        return mutate_bytes(rng, data, other)
    theirs = _parts(other)[1]
    content = _change(rng, content, theirs) if rng.random() < 0.7 else mutate_bytes(rng, content, theirs)
    text = base64.encodebytes(content)
    return _BEGIN + label + b"-----\n" + text + _END + label + b"-----\n"


@lru_cache(256)
def _parts(data: bytes) -> tuple[bytes, bytes]:
    """Label and content of the first block."""
    lines = data.split(b"\n")
    if not lines[0].startswith(_BEGIN):
        return b"", data
    label = lines[0].removeprefix(_BEGIN).rstrip(b"-\r")
    body = b"".join(line for line in lines[1:] if not line.startswith(b"-"))
    try:
        return label, base64.b64decode(body)
    except binascii.Error:
        return b"", data


def _change(rng: Random, data: bytes, other: bytes) -> bytes:
    """Another value of an element, with the lengths around it."""
    elements = _elements(data)
    if not elements:
        return mutate_bytes(rng, data, other)
    start, body, end, around = elements[int(rng.random() * len(elements))]
    kind, value = data[start : start + 1], data[body:end]
    how = rng.random()
    if how < 0.1:
        new = b""
    elif how < 0.2:
        new = data[start:end] * 2
    elif how < 0.4 and (theirs := _elements(other)):
        there, _, stop, _ = theirs[int(rng.random() * len(theirs))]
        new = other[there:stop]
    elif how < 0.5:
        new = bytes((int(rng.random() * 256),)) + data[start + 1 : end]
    else:
        value = mutate_bytes(rng, value, other) if how < 0.9 else value * int(rng.random() * 40)
        new = kind + _length(len(value)) + value
    for outer_start, outer_body, outer_end in reversed(around):
        new = data[outer_body:start] + new + data[end:outer_end]
        new = data[outer_start : outer_start + 1] + _length(len(new)) + new
        start, end = outer_start, outer_end
    return data[:start] + new + data[end:]


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    raw = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((0x80 | len(raw),)) + raw


_Element = tuple[int, int, int, tuple[tuple[int, int, int], ...]]


@lru_cache(256)
def _elements(data: bytes) -> tuple[_Element, ...]:
    """Begin, begin of the value, end, and the elements around it, of every element."""
    found: list[_Element] = []
    _collect(data, 0, len(data), (), found)
    return tuple(found)


def _collect(data: bytes, at: int, end: int, around: tuple[tuple[int, int, int], ...], found: list[_Element]) -> None:
    while at + 2 <= end:
        size, body = data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, body = int.from_bytes(data[body : body + count]), body + count
        if body + size > end:
            return
        found.append((at, body, body + size, around))
        inner = (*around, (at, body, body + size))
        if (data[at] & 0x20 and len(around) < 10) or (data[at] == 4 and size > 2):  # of several elements
            _collect(data, body, body + size, inner, found)
        at = body + size
