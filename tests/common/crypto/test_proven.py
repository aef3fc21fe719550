"""Proofs that many elements were raised to one exponent, against arithmetic that shares no code with them."""

from __future__ import annotations

import os

import pytest

from colonnade.common.crypto.proven import POINT, PROOF, Multiplier, hash_to_points, points_of, verify
from colonnade.common.errors import InputError

pytest.importorskip("coincurve")

P = 2**256 - 2**32 - 977
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def add(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    """The textbook's addition on y^2 = x^3 + 7."""
    if one is None or other is None:
        return one or other
    if one[0] == other[0] and (one[1] + other[1]) % P == 0:
        return None
    slope = (
        3 * one[0] ** 2 * pow(2 * one[1], -1, P)
        if one == other
        else (other[1] - one[1]) * pow(other[0] - one[0], -1, P)
    )
    x = (slope * slope - one[0] - other[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P


def times(scalar: int, point: tuple[int, int]) -> tuple[int, int] | None:
    total, base = None, point
    while scalar:
        total, scalar, base = (add(total, base) if scalar & 1 else total), scalar >> 1, add(base, base)  # type: ignore[assignment]
    return total


def apart(elements: bytes) -> list[tuple[int, int]]:
    return [
        (int.from_bytes(e[:32]), int.from_bytes(e[32:]))
        for e in (elements[a : a + POINT] for a in range(0, len(elements), POINT))
    ]


def listed(count: int, tag: bytes = b"tag") -> bytes:
    return b"".join(
        point.format(compressed=False)[1:] for point in hash_to_points([b"%d" % n for n in range(count)], tag)
    )


def test_keys_are_points_that_depend_on_key_and_tag() -> None:
    elements = apart(listed(20)) + apart(listed(20, b"other"))
    assert len({x for x, _ in elements}) == 40
    assert all((y * y - x**3 - 7) % P == 0 and y % 2 == 0 for x, y in elements)
    assert listed(20) == listed(20)


def test_elements_are_multiplied_by_one_exponent() -> None:
    own, elements = Multiplier(b"s" * 32), listed(3)
    raised = own.multiply(points_of(elements))
    assert apart(raised) == [times(own._x, point) for point in apart(elements)]
    assert own.take_back(raised) == elements
    other = Multiplier(b"t" * 32)
    assert own.multiply(points_of(other.multiply(points_of(elements)))) == other.multiply(points_of(raised))


@pytest.mark.parametrize("count", [1, 5, 300])
def test_a_proof_is_accepted_and_of_anything_else_refused(count: int) -> None:
    own, before = Multiplier(os.urandom(32)), listed(count)
    after = own.multiply(points_of(before))
    proof = own.prove(before, after, b"context")
    assert len(proof) == PROOF
    verify(own.public, before, after, b"context", proof)
    another = Multiplier(b"x").multiply(points_of(before[-POINT:]))
    negative = after[-POINT : -POINT // 2] + (P - int.from_bytes(after[-POINT // 2 :])).to_bytes(32)
    for wrong in (
        (own.public, before, after[:-POINT] + another, b"context", proof),
        (own.public, before, after[:-POINT] + negative, b"context", proof),
        (own.public, before, after, b"contexts", proof),
        (Multiplier(b"x").public, before, after, b"context", proof),
        (own.public, before, after, b"context", proof[:-1] + bytes([proof[-1] ^ 1])),
        (own.public, before, after, b"context", bytes(PROOF)),
        (own.public, before, after, b"context", b""),
        (own.public, before[:-1] + b"?", after, b"context", proof),
    ):
        with pytest.raises(InputError):
            verify(*wrong)


def test_no_proof_can_be_made_for_an_element_that_was_not_raised() -> None:
    """Not even by the prover itself: two changes that cancel in a plain sum do not in a weighted one."""
    own, before = Multiplier(os.urandom(32)), listed(300)
    after = own.multiply(points_of(before))
    swapped = after[POINT : 2 * POINT] + after[:POINT] + after[2 * POINT :]
    with pytest.raises(InputError, match="were not all raised"):
        verify(own.public, before, swapped, b"", own.prove(before, swapped, b""))


@pytest.mark.parametrize("element", [b"", bytes(POINT), b"\xff" * POINT, b"1" * POINT, b"1"])
def test_bytes_that_are_no_point_are_refused(element: bytes) -> None:
    if not element:
        assert points_of(element) == []
    else:
        with pytest.raises(InputError, match="no point"):
            points_of(element)
