"""The group of the private set intersection: curve25519, hashed to by Elligator 2, raised by X25519.

An element is a u-coordinate, 32 bytes as RFC 7748 writes them, so that P and -P are the same one. `hash_to_curve` is
`encode_to_curve` of the suite curve25519_XMD:SHA-512_ELL2_NU_ (RFC 9380) before its cofactor is cleared: every scalar
of X25519 is a multiple of the cofactor, so that every raised element lies in the subgroup of prime order. Scalars
commute. The map reaches one half of the points; it can be inverted, as the proof of such protocols requires.

Arithmetic on keys is not constant-time. It runs on the owner's machine over keys in a random order, block by block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import gmpy2
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from colonnade.common.errors import InputError

ELEMENT = 32  # bytes of an element, and of a secret

_P = gmpy2.mpz(2**255 - 19)
_A = 486662
_ORDER = 2**252 + 27742317777372353535851937790883648493  # of the subgroup, a prime
_COFACTOR = 8
_FIELD_BYTES = 48  # reduced modulo p: 128 bits more than p has
_LONGEST_TAG = 255
_NO_ELEMENT = "an element of small order, or of another length"
_EIGHTH = (  # the u-coordinates of order 8
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
# Of small order on the curve or its twist, also not reduced modulo p, and with either value of the bit X25519 ignores.
_SMALL = frozenset(
    (u + top).to_bytes(ELEMENT, "little")
    for u in (0, 1, *_EIGHTH, 2**255 - 20, 2**255 - 19, 2**255 - 18)
    for top in (0, 2**255)
)


def hash_to_curve(keys: Sequence[bytes], tag: bytes) -> bytes:
    """The elements of keys, concatenated: 32 bytes a key, not yet in the subgroup of prime order.

    `tag` is the domain of the hash, 1 to 255 bytes: another tag gives other elements.
    """
    if not 0 < len(tag) <= _LONGEST_TAG:
        raise InputError(f"a tag of {len(tag)} bytes", hint=f"give 1 to {_LONGEST_TAG}")
    suffix = tag + bytes([len(tag)])
    start = hashlib.sha512(bytes(hashlib.sha512().block_size))
    return b"".join(map_to_curve(to_field(key, start, suffix)) for key in keys)


def check_elements(elements: bytes) -> None:
    """Refuses the concatenated elements that `Secret.raise_all` refuses, without raising any to a power."""
    if len(elements) % ELEMENT or not _SMALL.isdisjoint(_apart(elements)):
        raise InputError(_NO_ELEMENT)


class Secret:
    """A secret scalar, 32 random bytes that X25519 clamps, to which elements are raised."""

    def __init__(self, scalar: bytes) -> None:
        self.scalar = scalar
        self._key = X25519PrivateKey.from_private_bytes(scalar)

    def inverse(self) -> Secret:
        """The secret that undoes this one on elements that were raised before, by this one or by another.

        X25519 takes multiples of the cofactor between 2^254 and 2^255. Of the two inverses, b and 8 l - b, which differ
        in the sign that a u-coordinate lacks, one is in this range, or in the gap between 2^255 and 8 l. Raises
        InputError if it is in the gap, which happens for one secret in 2^126.
        """
        clamped = int.from_bytes(self.scalar, "little") & (2**254 - _COFACTOR) | 2**254
        # No multiple of 8 below 2^255 is also one of l, so there is always an inverse.
        back = _COFACTOR * pow(_COFACTOR * clamped, -1, _ORDER)
        back = max(back, _COFACTOR * _ORDER - back)
        if back >= 2**255:
            raise InputError("a secret whose inverse X25519 does not take", hint="draw another")
        return Secret(back.to_bytes(ELEMENT, "little"))

    def raise_all(self, elements: bytes) -> bytes:
        """Raises each of the concatenated elements.

        Raises InputError if one is not an element or has small order: its sender is faulty or malicious.
        """
        exchange, parse = self._key.exchange, X25519PublicKey.from_public_bytes
        try:
            return b"".join([exchange(parse(element)) for element in _apart(elements)])
        except ValueError:  # not of 32 bytes, or the result would be zero
            raise InputError(_NO_ELEMENT) from None


def _apart(elements: bytes) -> Iterator[bytes]:
    return (elements[at : at + ELEMENT] for at in range(0, len(elements), ELEMENT))


def to_field(message: bytes, start: hashlib._Hash, suffix: bytes) -> gmpy2.mpz:
    """`hash_to_field` of RFC 9380 for one element, by `expand_message_xmd` with SHA-512: one block is enough."""
    first = start.copy()
    first.update(message + _FIELD_BYTES.to_bytes(2) + b"\0" + suffix)
    block = hashlib.sha512(first.digest() + b"\1" + suffix).digest()
    return gmpy2.mpz(int.from_bytes(block[:_FIELD_BYTES])) % _P


def map_to_curve(u: gmpy2.mpz) -> bytes:
    """`map_to_curve_elligator2` with Z = 2, the u-coordinate alone.

    1 + 2 u^2 is never zero, because -1/2 is not a square modulo p.
    """
    x = -_A * gmpy2.invert(1 + 2 * u * u, _P) % _P
    on_curve = gmpy2.jacobi(x * (x * (x + _A) + 1) % _P, _P) >= 0
    return int(x if on_curve else (-x - _A) % _P).to_bytes(ELEMENT, "little")
