"""The group of the private set intersection: curve25519, hashed to by Elligator 2, raised by X25519.

An element is a u-coordinate, 32 bytes as RFC 7748 writes them, so that P and -P are the same one. `hash_to_curve` is
`encode_to_curve` of the suite curve25519_XMD:SHA-512_ELL2_NU_ (RFC 9380) before its cofactor is cleared: every scalar
of X25519 is a multiple of the cofactor, so that whatever was raised once lies in the subgroup of prime order. Scalars
commute. The map reaches one half of the points; it can be inverted, which is what the proof of such protocols asks.

Arithmetic on keys is not of constant time. It runs on the owner's machine over keys in a random order, block by block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import gmpy2
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from common.errors import InputError

ELEMENT = 32
"""Bytes of an element, and of a secret."""

_P = gmpy2.mpz(2**255 - 19)
_A = 486662
_FIELD_BYTES = 48  # that are reduced modulo p: 128 bits more than it has
_LONGEST_TAG = 255


def hash_to_curve(keys: Sequence[bytes], tag: bytes) -> bytes:
    """The elements of keys, end to end: 32 bytes a key, not yet in the subgroup of prime order.

    Args:
        keys: whatever they say.
        tag: what the hash is for: with another tag, every element is another.

    Raises:
        InputError: the tag is empty or too long.
    """
    if not 0 < len(tag) <= _LONGEST_TAG:
        raise InputError(f"a tag of {len(tag)} bytes", hint=f"give 1 to {_LONGEST_TAG}")
    suffix = tag + bytes([len(tag)])
    start = hashlib.sha512(bytes(hashlib.sha512().block_size))
    return b"".join(_map_to_curve(_hash_to_field(key, start, suffix)) for key in keys)


class Secret:
    """A secret scalar, to which elements are raised.

    Args:
        scalar: 32 random bytes; X25519 clamps them.
    """

    def __init__(self, scalar: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(scalar)

    def raise_all(self, elements: bytes) -> bytes:
        """Elements end to end, each raised.

        Raises:
            InputError: one is no element, or of small order: whoever sent it is broken, or worse.
        """
        exchange, parse = self._key.exchange, X25519PublicKey.from_public_bytes
        try:
            return b"".join([exchange(parse(elements[at : at + ELEMENT])) for at in range(0, len(elements), ELEMENT)])
        except ValueError:  # not of 32 bytes, or the result would be zero
            raise InputError("an element of small order, or of another length") from None


def _hash_to_field(message: bytes, start: hashlib._Hash, suffix: bytes) -> gmpy2.mpz:
    """`hash_to_field` of RFC 9380 for one element, by `expand_message_xmd` with SHA-512: one block is enough."""
    first = start.copy()
    first.update(message + _FIELD_BYTES.to_bytes(2) + b"\0" + suffix)
    block = hashlib.sha512(first.digest() + b"\1" + suffix).digest()
    return gmpy2.mpz(int.from_bytes(block[:_FIELD_BYTES])) % _P


def _map_to_curve(u: gmpy2.mpz) -> bytes:
    """`map_to_curve_elligator2` with Z = 2, the u-coordinate alone.

    1 + 2 u^2 is never zero, because -1/2 is no square modulo p.
    """
    x = -_A * gmpy2.invert(1 + 2 * u * u, _P) % _P
    on_curve = gmpy2.jacobi(x * (x * (x + _A) + 1) % _P, _P) >= 0
    return int(x if on_curve else (-x - _A) % _P).to_bytes(ELEMENT, "little")
