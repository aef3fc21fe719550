"""The group against the vectors of RFC 9380 and 7748, and against plain integers; masks are uniform."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from unittest import mock

import gmpy2
import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from colonnade.common.aggregation.field import secure_elements
from colonnade.common.crypto.group import ELEMENT, Secret, check_elements, hash_to_curve, map_to_curve, to_field
from colonnade.common.errors import InputError

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
SUITE = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_NU_"
MESSAGES = (b"", b"abc", b"abcdef0123456789", b"q128_" + b"q" * 128, b"a512_" + b"a" * 512)
# RFC 9380, J.4.2: u, and the x-coordinates of Q = map_to_curve(u) and P = 8 Q.
VECTORS = (
    (
        "608d892b641f0328523802a6603427c26e55e6f27e71a91a478148d45b5093cd",
        "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b",
        "1bb913f0c9daefa0b3375378ffa534bda5526c97391952a7789eb976edfe4d08",
    ),
    (
        "46f5b22494bfeaa7f232cc8d054be68561af50230234d7d1d63d1d9abeca8da5",
        "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb",
        "7c22950b7d900fa866334262fcaea47a441a578df43b894b4625c9b450f9a026",
    ),
    (
        "235fe40c443766ce7e18111c33862d66c3b33267efa50d50f9e8e5d252a40aaa",
        "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f",
        "31ad08a8b0deeb2a4d8b0206ca25f567ab4e042746f792f4b7973f3ae2096c52",
    ),
    (
        "001e92a544463bda9bd04ddbe3d6eed248f82de32f522669efc5ddce95f46f5b",
        "227e0bb89de700385d19ec40e857db6e6a3e634b1c32962f370d26f84ff19683",
        "027877759d155b1997d0d84683a313eb78bdb493271d935b622900459d52ceaa",
    ),
    (
        "1a68a1af9f663592291af987203393f707305c7bac9c8d63d6a729bdc553dc19",
        "3bcd651ee54d5f7b6013898aab251ee8ecc0688166fce6e9548d38472f6bd196",
        "5fd892c0958d1a75f54c3182a18d286efab784e774d1e017ba2fb252998b5dc1",
    ),
)


# Of order 8: twice such a point is the one of order 4 with u = 1.
EIGHTH = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


def ladder(scalar: int, x: int) -> int:
    """The Montgomery ladder of RFC 7748 in plain integers, for any scalar; 0 for the point at infinity."""
    a, b, c, d = 1, 0, x, 1
    for bit in reversed(range(scalar.bit_length())):
        if scalar >> bit & 1:
            a, b, c, d = c, d, a, b
        plus, minus, other_plus, other_minus = a + b, a - b, c + d, c - d
        cross, bar = other_minus * plus, other_plus * minus
        c, d = (cross + bar) ** 2 % P, x * (cross - bar) ** 2 % P
        square, other = plus**2 % P, minus**2 % P
        a, b = square * other % P, (square - other) * (square + 121665 * (square - other)) % P
        if scalar >> bit & 1:
            a, b, c, d = c, d, a, b
    return a * pow(b, P - 2, P) % P


def clamped(scalar: bytes) -> int:
    return int.from_bytes(scalar, "little") & (2**254 - 8) | 2**254


def number(element: bytes) -> int:
    return int.from_bytes(element, "little")


@pytest.mark.parametrize(("message", "vector"), list(zip(MESSAGES, VECTORS, strict=True)))
def test_hashing_gives_the_vectors_of_the_rfc(message: bytes, vector: tuple[str, str, str]) -> None:
    u, q, p = (int(x, 16) for x in vector)
    hashed = number(hash_to_curve([message], SUITE))
    assert (hashed, ladder(8, hashed)) == (q, p)
    assert number(map_to_curve(gmpy2.mpz(u))) == q


@given(st.integers(0, P - 1))
def test_the_map_always_ends_on_the_curve(u: int) -> None:
    x = number(map_to_curve(gmpy2.mpz(u)))
    y_squared = (x**3 + 486662 * x**2 + x) % P
    assert x < P and pow(y_squared, (P - 1) // 2, P) in (0, 1)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=20))
def test_raising_is_the_ladder_in_plain_integers(scalar: bytes, key: bytes) -> None:
    element = hash_to_curve([key], b"test")
    assert number(Secret(scalar).raise_all(element)) == ladder(clamped(scalar), number(element))


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=4), st.randoms())
def test_secrets_commute(scalars: list[bytes], random: object) -> None:
    def raised(order: list[bytes]) -> bytes:
        elements = hash_to_curve([b"ada", b"bob"], b"test")
        for scalar in order:
            elements = Secret(scalar).raise_all(elements)
        return elements

    turned = list(scalars)
    random.shuffle(turned)  # type: ignore[attr-defined]
    assert raised(scalars) == raised(turned)


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), st.binary(max_size=20))
def test_an_inverse_takes_a_secret_back_and_leaves_the_others(scalar: bytes, other: bytes, key: bytes) -> None:
    secret, element = Secret(scalar), hash_to_curve([key], b"test")
    raised = Secret(other).raise_all(secret.raise_all(element))
    assert secret.inverse().raise_all(raised) == Secret(other).raise_all(element)
    # Of an element never raised it leaves the part in the subgroup of prime order: 8 (8^-1 mod l) times the element.
    cleared = ladder(pow(8, -1, ORDER) * 8, number(element))
    assert number(secret.inverse().raise_all(secret.raise_all(element))) == cleared


def test_a_secret_with_too_long_an_inverse_is_refused() -> None:
    """Never drawn by chance: constructed from an inverse between 2^255 and 8 l."""
    inverse = 2**255 + 8
    scalars = (8 * pow(8 * inverse, -1, ORDER), 8 * ORDER - 8 * pow(8 * inverse, -1, ORDER))
    (scalar,) = (each for each in scalars if 2**254 <= each < 2**255)
    with pytest.raises(InputError, match="inverse"):
        Secret(scalar.to_bytes(32, "little")).inverse()


def test_another_tag_is_another_hash_and_a_tag_is_needed() -> None:
    one, other = hash_to_curve([b"ada"], b"one"), hash_to_curve([b"ada"], b"other")
    assert len(one) == ELEMENT and one != other
    for tag in (b"", bytes(256)):
        with pytest.raises(InputError, match=f"a tag of {len(tag)} bytes"):
            hash_to_curve([b"ada"], tag)


@pytest.mark.parametrize("bad", [bytes(32), (1).to_bytes(32, "little"), b"\5" * 31], ids=["zero", "order 4", "short"])
def test_points_of_small_order_and_of_other_lengths_are_refused(bad: bytes) -> None:
    elements = hash_to_curve([b"ada"], b"test") + bad
    for refuses in (Secret(bytes(range(32))).raise_all, check_elements):
        with pytest.raises(InputError, match="small order, or of another length"):
            refuses(elements)


def test_points_are_accepted_exactly_where_raising_would_accept_them() -> None:
    """Around every point of order dividing 8, in plain integers, with the bit that X25519 ignores and without."""
    small = [u for u in (*range(8), *range(P - 8, 2**255), *EIGHTH) if ladder(8, u % P) == 0]
    assert len(small) == 7 and [ladder(2, u) for u in EIGHTH] == [1, 1]
    for u in {(u + more) % 2**255 for u in small for more in (-1, 0, 1)}:
        for top in (0, 2**255):
            element = (u + top).to_bytes(32, "little")
            assert accepts(check_elements, element) == accepts(Secret(bytes(range(32))).raise_all, element)


def accepts(call: Callable[[bytes], object], element: bytes) -> bool:
    try:
        call(element)
    except InputError:
        return False
    return True


def test_the_field_element_of_the_rfc() -> None:
    import hashlib

    start = hashlib.sha512(bytes(128))
    for message, (u, _q, _p) in zip(MESSAGES, VECTORS, strict=True):
        assert to_field(message, start, SUITE + bytes([len(SUITE)])) == int(u, 16)


MERSENNE, NEAR_26, REJECTS_HALF = 2**31 - 1, 2**26 - 5, 2**16 + 1


def seeded(p: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """Masks drawn with this seed in place of the system's randomness."""
    with mock.patch.object(os, "urandom", random.Random(seed).randbytes):
        return secure_elements(p)(shape)


@pytest.mark.parametrize("p", [2, 3, 5, 7, 257])
def test_small_fields_are_hit_evenly(p: int) -> None:
    counts = torch.bincount(seeded(p, 200_000), minlength=p)
    assert len(counts) == p and stats.chisquare(counts.numpy()).pvalue > 1e-4


@pytest.mark.parametrize("p", [REJECTS_HALF, NEAR_26, MERSENNE])
def test_large_ones_are_over_their_whole_range(p: int) -> None:
    drawn = seeded(p, 400_000)
    assert int(drawn.min()) >= 0 and int(drawn.max()) < p
    for bins in (64, 97):
        edges = np.linspace(0, p, bins + 1)
        counts, expected = np.histogram(drawn.numpy(), edges)[0], np.diff(np.ceil(edges))
        assert stats.chisquare(counts, expected / expected.sum() * len(drawn)).pvalue > 1e-4
    low = torch.bincount(drawn % 8, minlength=8).numpy()
    assert stats.chisquare(low).pvalue > 1e-4


def test_neighbours_are_independent() -> None:
    first, second = seeded(7, 200_000).reshape(2, -1)
    apart = seeded(7, 200_000).reshape(-1, 2).unbind(1)
    for one, other in [(first, second), apart]:
        assert stats.chisquare(torch.bincount(one * 7 + other, minlength=49).numpy()).pvalue > 1e-4


@pytest.mark.parametrize("p", [5, REJECTS_HALF, MERSENNE])
def test_masks_are_the_keystream_without_values_that_are_too_large(p: int) -> None:
    key = random.Random(3).randbytes(32)
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(4 * 300_000))
    bits = (p - 1).bit_length()
    words = (int.from_bytes(stream[4 * i : 4 * i + 4], "little") % 2**bits for i in range(300_000))
    assert seeded(p, 100_000, seed=3).tolist() == [word for word in words if word < p][:100_000]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 3), (2, 3, 5), (2**15 + 1,)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    drawn = secure_elements(MERSENNE)(shape)
    assert drawn.shape == shape and drawn.dtype == torch.int64


def test_secure_elements_are_uniform_and_never_come_again() -> None:
    torch.manual_seed(0)
    draw = secure_elements(MERSENNE)
    one, two = draw((1000,)), draw((1000,))
    torch.manual_seed(0)
    three = secure_elements(MERSENNE)((1000,))
    for other in (two, three):
        assert int((one == other).sum()) < 3
    assert abs(float(draw((100_000,)).double().mean()) / MERSENNE - 0.5) < 6 * 12**-0.5 / 100_000**0.5
