"""The group of an alignment with proofs: secp256k1, and proofs that many elements were raised to one exponent.

Its order is prime, so that every point but infinity is a proper element, and libsecp256k1 adds points in less than half
a microsecond, which proofs over many elements need (`pip install colonnade[proofs]`). An element is a point, 64 bytes:
both coordinates. Keys are hashed by trial: the first of SHA-256(tag, number, key), for 0, 1, .., that is the
x-coordinate of a point, with even y.

The proof is that of Chaum and Pedersen (CRYPTO 1992) for the discrete logarithms of two sums: with P = sum w_i L_i and
Q = sum w_i M_i, log_G X = log_P Q. The weights w_i have 128 bits and are a hash of all L_i and M_i (Bellare, Garay and
Rabin, EUROCRYPT 1998), so that a false statement (M_i != x L_i for some i) passes with a probability of 2^-128. It is
made non-interactive by a hash of everything (Fiat and Shamir).

Multiplications take a time that depends on the exponent. They run on its owner's machine, block by block.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.common.crypto.curve_library import point_class
from colonnade.common.errors import InputError

Point = Any  # coincurve's PublicKey, which is imported where it is needed

POINT = 64

PROOF = 64  # bytes of a proof: challenge and response

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_SCALAR = 32
_WEIGHT = 16  # bytes; buckets take one byte at a time
_FEW = 256  # points for which buckets do not pay
_NO_ELEMENT = "an element that is no point, or of another length"


def points_of(elements: bytes) -> list[Point]:
    """The points of concatenated elements. Raises InputError: one is not a point of the curve."""
    if len(elements) % POINT:
        raise InputError(_NO_ELEMENT)
    make = point_class()
    try:
        return [make(b"\x04" + elements[at : at + POINT]) for at in range(0, len(elements), POINT)]
    except ValueError:
        raise InputError(_NO_ELEMENT) from None


def hash_to_points(keys: Sequence[bytes], tag: bytes) -> list[Point]:
    """Points of keys; `tag` is the domain of the hash."""
    start = hashlib.sha256(len(tag).to_bytes(8) + tag)
    return [_hashed(start, key) for key in keys]


class Multiplier:
    """A secret exponent, from 32 random bytes. `public` is x G, which proofs refer to."""

    def __init__(self, scalar: bytes) -> None:
        wide = hashlib.sha512(b"colonnade exponent" + scalar).digest()
        self._x = int.from_bytes(wide) % (_ORDER - 1) + 1
        self.public = _bytes([point_class().from_valid_secret(_scalar(self._x))])

    def multiply(self, points: Iterable[Point]) -> bytes:
        by = _scalar(self._x)
        return _bytes(point.multiply(by) for point in points)

    def take_back(self, elements: bytes) -> bytes:
        """The elements P from x P."""
        by = _scalar(pow(self._x, -1, _ORDER))
        return _bytes(point.multiply(by) for point in points_of(elements))

    def prove(self, before: bytes, after: bytes, context: bytes) -> bytes:
        """Proves that all elements were multiplied by this exponent, PROOF bytes.

        Args:
            before, after: concatenated elements, in one order; at least one.
            context: what the proof is for; it is valid in no other context.
        """
        seed = _seed(self.public, before, after, context)
        base = _weighted(points_of(before), seed)
        drawn = int.from_bytes(os.urandom(2 * _SCALAR)) % (_ORDER - 1) + 1
        result = base.multiply(_scalar(self._x))
        shown = [point_class().from_valid_secret(_scalar(drawn)), base.multiply(_scalar(drawn))]
        challenge = _challenge(seed, [base, result, *shown])
        return _scalar(challenge) + _scalar((drawn + challenge * self._x) % _ORDER)


def verify(public: bytes, before: bytes, after: bytes, context: bytes, proof: bytes) -> None:
    """Returns if all elements were multiplied by the exponent of a public point; arguments as in `Multiplier.prove`."""
    if len(proof) != PROOF or len(before) != len(after) or not before:
        raise InputError("no proof of one exponent")
    challenge, response = int.from_bytes(proof[:_SCALAR]), int.from_bytes(proof[_SCALAR:])
    if not (0 < challenge < _ORDER and 0 < response < _ORDER):
        raise InputError("no proof of one exponent")
    seed, (key,) = _seed(public, before, after, context), points_of(public)
    base, result = _weighted(points_of(before), seed), _weighted(points_of(after), seed)
    less, make = _scalar(_ORDER - challenge), point_class()
    try:
        shown = [
            make.combine_keys([make.from_valid_secret(_scalar(response)), key.multiply(less)]),
            make.combine_keys([base.multiply(_scalar(response)), result.multiply(less)]),
        ]
    except ValueError:  # infinity, which no prover shows
        raise InputError("no proof of one exponent") from None
    if _challenge(seed, [base, result, *shown]) != challenge:
        raise InputError("elements that were not all raised to the sender's exponent")


def _seed(public: bytes, before: bytes, after: bytes, context: bytes) -> bytes:
    digest = hashlib.sha256(b"colonnade one exponent" + len(context).to_bytes(8) + context + public)
    digest.update(len(before).to_bytes(8) + before + after)
    return digest.digest()


def _challenge(seed: bytes, points: Sequence[Point]) -> int:
    return int.from_bytes(hashlib.sha512(b"challenge" + seed + _bytes(points)).digest()) % _ORDER


def _weighted(points: Sequence[Point], seed: bytes) -> Point:
    """sum w_i P_i with the weights of a seed, by buckets of each byte of the weights (Pippenger)."""
    stream = hashlib.shake_256(b"weights" + seed).digest(_WEIGHT * len(points))
    weights = np.frombuffer(stream, np.uint8).reshape(-1, _WEIGHT)
    total: Point | None = None
    if len(points) < _FEW:
        scalars = (_scalar(int.from_bytes(weight.tobytes()) or 1) for weight in weights)
        total = _sum([point.multiply(scalar) for point, scalar in zip(points, scalars, strict=True)])
    else:
        for place in range(_WEIGHT):
            if total is not None:
                total = total.multiply(_scalar(256))
            total = _sum([total, _by_buckets(points, weights[:, place])])
    if total is None:
        raise InputError("elements whose sum is infinity")
    return total


def _by_buckets(points: Sequence[Point], digits: NDArray[np.uint8]) -> Point | None:
    """sum d_i P_i for digits of one byte; None for infinity."""
    order = np.argsort(digits, kind="stable")
    cuts = np.searchsorted(digits[order], np.arange(257)).tolist()
    places, above, total = order.tolist(), None, None
    for digit in range(255, 0, -1):
        above = _sum([above, *(points[place] for place in places[cuts[digit] : cuts[digit + 1]])])
        total = _sum([total, above])
    return total


def _sum(points: Sequence[Point | None]) -> Point | None:
    there = [point for point in points if point is not None]
    if len(there) < 2:  # nothing to add
        return there[0] if there else None
    try:
        return point_class().combine_keys(there)
    except ValueError:
        return None


def _hashed(start: Any, key: bytes) -> Point:
    for number in range(1 << 16):
        digest = start.copy()
        digest.update(number.to_bytes(2) + key)
        try:
            return point_class()(b"\x02" + digest.digest())
        except ValueError:  # not the x-coordinate of a point: half are not
            continue
    raise AssertionError


def _bytes(points: Iterable[Point]) -> bytes:
    return b"".join([point.format(compressed=False)[1:] for point in points])


def _scalar(value: int) -> bytes:
    return value.to_bytes(_SCALAR)
