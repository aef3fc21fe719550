"""Directions: the same at both ends, isotropic, and reproducible from their seed."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from colonnade.common.models.zeroth_order import Directions, Draw

DRAWS: tuple[Draw, ...] = ("sphere", "normal", "signs", "orthogonal")


@given(st.sampled_from(DRAWS), st.integers(0, 2**31), st.integers(1, 2**32 - 1), st.integers(1, 9), st.integers(1, 12))
def test_both_ends_draw_the_same(draw: Draw, seed: int, turn: int, rows: int, width: int) -> None:
    count = min(3, width)
    ours, theirs = (Directions(seed, draw, count, width) for _ in range(2))
    theirs.of("party1", turn + 1, 2 * rows)  # earlier draws change nothing
    one, two = ours.of("party1", turn, rows), theirs.of("party1", turn, rows)
    assert one.u.shape == (rows, count, width) and one.u.dtype == torch.float32
    assert torch.equal(one.u, two.u) and one.mark == two.mark < 2**32


@pytest.mark.parametrize("draw", DRAWS)
def test_another_seed_party_or_turn_gives_other_directions_and_another_mark(draw: Draw) -> None:
    ours = Directions(0, draw, 4, 8)
    first = ours.of("party1", 1, 5)
    u, mark = first.u.clone(), first.mark
    others = Directions(1, draw, 4, 8).of("party1", 1, 5), ours.of("party2", 1, 5), ours.of("party1", 2, 5)
    assert len({mark, *(other.mark for other in others)}) == 4
    for party, turn in (("party2", 1), ("party1", 2)):
        assert not torch.equal(ours.of(party, turn, 5).u, u)


@pytest.mark.parametrize("draw", DRAWS)
def test_they_are_isotropic(draw: Draw) -> None:
    """E[u] = 0 and E[u u'] = I / phi, within five standard errors."""
    directions = Directions(3, draw, 4, 6)
    u = directions.of("party1", 1, 20_000).u.double() * directions.factor**0.5
    flat = u.flatten(0, 1).numpy()
    assert np.abs(flat.mean(0)).max() < 5 / np.sqrt(len(flat))
    assert np.abs(flat.T @ flat / len(flat) - np.eye(6)).max() < 5 * np.sqrt(2 / len(flat))
    if draw != "normal":
        assert np.allclose(np.linalg.norm(flat, axis=1), 6**0.5, atol=1e-5)
    if draw == "orthogonal":
        assert torch.allclose(u[:99] @ u[:99].mT, 6 * torch.eye(4, dtype=torch.float64).expand(99, 4, 4), atol=1e-5)


def test_normal_ones_are_normal() -> None:
    u = Directions(0, "normal", 100, 100).of("a", 1, 100).u.flatten().double().numpy()
    for value in (-2.0, -1.0, 0.0, 0.5, 1.5):
        assert abs((u < value).mean() - norm.cdf(value)) < 1e-3
    assert abs((u**4).mean() - 3) < 0.03


def test_they_match_the_docstring() -> None:
    """From the cipher's blocks, one at a time, and scipy's quantiles: any other implementation can follow."""
    key = hashlib.blake2b(b"directions/7/bank", digest_size=16).digest()
    blocks = b"".join(
        Cipher(AES(key), ECB()).encryptor().update((5).to_bytes(8) + number.to_bytes(8)) for number in range(3)
    )
    table = norm.ppf((np.arange(4096) + 0.5) / 4096)
    expected = (table / table.std())[np.frombuffer(blocks, "<u2") & 4095]
    drawn = Directions(7, "normal", 3, 4).of("bank", 5, 2)
    assert np.allclose(drawn.u.flatten().numpy(), expected, rtol=1e-6)
    signs = Directions(7, "signs", 3, 4).of("bank", 5, 2).u.flatten().numpy()
    bits = np.unpackbits(np.frombuffer(blocks[:3], np.uint8)).astype(float)
    assert np.array_equal(signs, np.float32(0.5) * (2 * bits - 1))


def test_directions_drawn_ahead_equal_those_drawn_on_demand() -> None:
    """More parties than are cached, in any order; unused directions are drawn anew."""
    plain, eager = (Directions(0, "sphere", 3, 4) for _ in range(2))
    parties = [f"party{number}" for number in range(12)]
    for turn in range(1, 6):
        for party in parties:
            asked = turn + (party == "party3")  # others than were prepared
            expected = plain.of(party, asked, 5)
            found = eager.of(party, asked, 5)
            assert torch.equal(found.u, expected.u) and found.mark == expected.mark
            eager.ahead(party, turn + 1, 5)
