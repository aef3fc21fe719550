"""Mutations of bytes of any kind."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Mutate = Callable[[Random, bytes, bytes], bytes]
"""Makes an input of one, and of another to take parts from. The same for the same state of the generator."""

LONGEST = 1 << 16
"""Bytes of an input; a mutation that repeats a part makes no longer one."""

_ODD = (0, 1, 0x7F, 0x80, 0xFF, 0x20, 0x0A, 0x2D)
_WORDS = tuple(
    bytes.fromhex(word)
    for word in (
        "ffffffff", "00000000", "ffffff7f", "00000080", "ffffffffffffffff", "ffffffffffffff7f", "0000000000000080",
        "000000000000f07f", "000000000000f0ff", "000000000000f87f", "0000c07f", "0000807f", "ffffef7f", "007e", "007c",
        "ffffffffffffffffff01", "ffffffffffffffffff7f", "ffffffffffffffffffff01", "8080808010", "8000", "808000",
    )
)  # fmt: skip
"""Largest and smallest integers, infinities and NaN of three sizes, long varints."""


def mutate_bytes(rng: Random, data: bytes, other: bytes) -> bytes:
    """One to four changes of bytes."""
    for _ in range(1 + int(rng.random() ** 2 * 4)):
        data = _CHANGES[int(rng.random() * len(_CHANGES))](rng, data, other)
    return data[:LONGEST]


def _flip(rng: Random, data: bytes, _other: bytes) -> bytes:
    if not data:
        return b"\0"
    at = int(rng.random() * len(data))
    return data[:at] + bytes((data[at] ^ 1 << int(rng.random() * 8),)) + data[at + 1 :]


def _set(rng: Random, data: bytes, _other: bytes) -> bytes:
    at, value = int(rng.random() * (len(data) + 1)), int(rng.random() * 264)
    return data[:at] + bytes((value if value < 256 else _ODD[value - 256],)) + data[at + 1 :]


def _cut(rng: Random, data: bytes, _other: bytes) -> bytes:
    return data[: int(rng.random() * (len(data) + 1))]


def _remove(rng: Random, data: bytes, _other: bytes) -> bytes:
    at = int(rng.random() * (len(data) + 1))
    return data[:at] + data[at + 1 + int(rng.random() ** 3 * 16) :]


def _insert(rng: Random, data: bytes, _other: bytes) -> bytes:
    at = int(rng.random() * (len(data) + 1))
    return data[:at] + rng.randbytes(1 + int(rng.random() ** 3 * 16)) + data[at:]


def _word(rng: Random, data: bytes, _other: bytes) -> bytes:
    at, word = int(rng.random() * (len(data) + 1)), _WORDS[int(rng.random() * len(_WORDS))]
    return data[:at] + word + data[at + (len(word) if rng.random() < 0.7 else 0) :]


def _repeat(rng: Random, data: bytes, _other: bytes) -> bytes:
    start = int(rng.random() * (len(data) + 1))
    part = data[start : start + 1 + int(rng.random() * 24)]
    times = 1 if rng.random() < 0.9 else int(rng.random() * 2000)
    return (data[:start] + part * (times + 1) + data[start + len(part) :])[:LONGEST]


def _splice(rng: Random, data: bytes, other: bytes) -> bytes:
    return data[: int(rng.random() * (len(data) + 1))] + other[int(rng.random() * (len(other) + 1)) :]


def _transplant(rng: Random, data: bytes, other: bytes) -> bytes:
    start, at = int(rng.random() * (len(other) + 1)), int(rng.random() * (len(data) + 1))
    part = other[start : start + 1 + int(rng.random() ** 2 * 64)]
    return data[:at] + part + data[at + (len(part) if rng.random() < 0.5 else 0) :]


_CHANGES: tuple[Mutate, ...] = (
    _flip,
    _flip,
    _set,
    _set,
    _cut,
    _remove,
    _insert,
    _word,
    _word,
    _repeat,
    _splice,
    _transplant,
)
