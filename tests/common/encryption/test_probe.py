"""Sums that go back to the party: exact, masked and flooded; a probe against chosen hints; errors of ciphertexts."""

from __future__ import annotations

import math
import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from colonnade.common.encryption.linear import Hint, keystream, rounded, small_gaussian
from colonnade.common.encryption.messages import BLOCK
from colonnade.common.encryption.parameters import (
    DEGREE,
    LEAST_SIGMA,
    PROBES,
    SIGMA,
    SumSize,
)
from colonnade.common.encryption.probe import Probe, ProbeAnswer, digest
from colonnade.common.encryption.ring import Words
from colonnade.common.errors import InputError
from tests.common.encryption.test_linear import NONCES, Digits, Pair, bins, public_matrix

SEED = bytes(range(32))


def returned(pair: Pair, vectors: np.ndarray, hint: Hint | None = None) -> Words:
    """What the party has once it has taken its mask away."""
    keys = pair.sender.keys(vectors.shape[1])
    answer = pair.holder.begin(keys.dummy)
    for first in range(0, len(vectors), BLOCK):
        answer.add(pair.sender.encrypt(keys, vectors[first : first + BLOCK], first // DEGREE))
    masked, mask = answer.masked()
    pair.keys = keys  # type: ignore[attr-defined]
    return pair.sender.opened(hint or pair.hint, keys, masked) - mask


def probed(pair: Pair, size: SumSize, hint: Hint | None = None, seed: bytes = SEED) -> None:
    """A probe of a hint, with its own checks."""
    public = public_matrix(NONCES, size)
    probe, again = Probe(size, public, SEED), Probe(size, public, SEED)
    answer, received = pair.holder.begin(probe.dummy), list(probe.blocks())
    for c in received:
        answer.add(c)
    party = ProbeAnswer(size, public, answer, digest(probe.dummy, *received))
    y = party.open(seed)
    assert digest(y) == party.digest
    again.refuse(hint or pair.hint, y)


@settings(max_examples=8, deadline=None)
@given(rows=st.one_of(st.integers(1, 9000), st.just(BLOCK + 1)), seed=st.integers(0, 2**32), extreme=st.booleans())
def test_a_party_has_its_exact_sums_back_and_an_honest_hint_passes(rows: int, seed: int, extreme: bool) -> None:
    rng, size = np.random.default_rng(seed), SumSize(rows)
    matrix, most = bins(rng, rows, [3, 5]), 2**size.precision - 1
    values = np.full((rows, 2), most) if extreme else rng.integers(-most, most + 1, (rows, 2))
    pair = Pair(size, matrix)
    found = rounded(size, returned(pair, values))
    assert np.array_equal(found, matrix.rows(0, rows).astype(np.int64) @ values)
    probed(pair, size)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair(SumSize(500), bins(np.random.default_rng(3), 500, [8, 24]))


def chosen(pair: Pair, entries: dict[tuple[int, int], int]) -> Hint:
    """The pair's hint and D, by bin and coordinate."""
    words = pair.table.copy()
    for place, entry in entries.items():
        words[place] = (int(words[place]) + entry) % 2**64
    return Hint(words)


def test_without_a_probe_a_chosen_hint_reads_the_secret(pair: Pair) -> None:
    """One entry of s in a bin, times 2^60: the party sees it after it has taken its mask away."""
    hint = chosen(pair, {(number, 7 * number): 1 << 60 for number in range(32)})
    zeros = np.zeros((500, 1), np.int64)
    seen = returned(pair, zeros, hint)[:, 0].view(np.int64)
    read = -np.rint(seen / 2**60).astype(int)
    assert np.array_equal(read, pair.keys.secrets[0, 7 * np.arange(32)])  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="the hint is of no table of bins"):
        probed(pair, SumSize(500), hint)


@pytest.mark.parametrize("entry", [1 << 60, 1 << 33, 1 << 24])
def test_an_entry_beyond_the_bound_is_found(pair: Pair, entry: int) -> None:
    """In a hundred places of one bin: D s is then beyond the bound but for a chance that nobody sees."""
    hint = chosen(pair, {(3, place): entry for place in range(100)})
    with pytest.raises(InputError):
        probed(pair, SumSize(500), hint)


def test_weighted_rows_pass_and_tell_a_bin_s_labels() -> None:
    """A limit: the probe asks for a hint of some short table, not of bins. With g of two values, as in a first round,
    powers of two tell the labels of as many rows as a sum has bits left.
    """
    size, rng = SumSize(500), np.random.default_rng(0)
    y, told = rng.integers(0, 2, 500), 14
    table = np.zeros((500, 4), np.int64)
    for number in range(4):
        table[number * told : (number + 1) * told, number] = 1 << np.arange(told)
    pair = Pair(size, Digits(table))
    probed(pair, size)
    high, low = 700 << 6, -300 << 6
    words = returned(pair, np.where(y, high, low)[:, None])[:, 0].view(np.int64)
    sums = np.rint(words / size.step).astype(np.int64) - low * ((1 << told) - 1)
    read = (sums[:, None] // (high - low)) >> np.arange(told) & 1
    assert np.array_equal(read.ravel(), y[: 4 * told])


def test_what_passes_the_probe_is_under_the_flood() -> None:
    """The largest D s that passes moves a returned sum by a 186th of its noise, and tells 1.4e-5 nats at most."""
    for rows in (1, 40_000, 10**6):
        size = SumSize(rows)
        assert (size.largest_probe_error / size.flood) ** 2 / 2 < 1.5e-5
        assert size.residual(PROBES, size.probe_noise) > LEAST_SIGMA
        assert size.residual(PROBES, size.probe_noise) > 0.99 * SIGMA / 2**0.5


def test_a_party_sees_noise_about_its_sums_and_the_server_none(pair: Pair) -> None:
    size = SumSize(500)
    zeros = np.zeros((500, 40), np.int64)
    noise = returned(pair, zeros).view(np.int64).astype(float)
    assert abs(noise.std() / size.flood - 1) < 0.1
    keys = pair.sender.keys(40)
    answer = pair.holder.begin(keys.dummy)
    answer.add(pair.sender.encrypt(keys, zeros))
    top = np.bincount((answer.masked()[0] >> np.uint64(61)).astype(int).ravel(), minlength=8)
    assert np.abs(top / top.sum() - 1 / 8).max() < 0.05


def test_a_probe_of_other_vectors_than_its_seed_s_is_not_answered(pair: Pair) -> None:
    with pytest.raises(InputError, match="not zeros of its seed"):
        probed(pair, SumSize(500), seed=bytes(32))


@cache
def total(sigma: int) -> float:
    return math.fsum(math.exp(-y * y / (2 * sigma * sigma)) for y in range(-200, 201))


def exact(x: int, sigma: int) -> float:
    return math.exp(-x * x / (2 * sigma * sigma)) / total(sigma)


@pytest.mark.parametrize("sigma", [1, 8])
def test_samples_have_the_probabilities(sigma: int) -> None:
    drawn = small_gaussian(2_000_000, sigma, random.Random(1).randbytes)
    most = 3 * sigma
    counts = [int((drawn == x).sum()) for x in range(-most, most + 1)]
    expected = [exact(x, sigma) * len(drawn) for x in range(-most, most + 1)]
    counts.append(len(drawn) - sum(counts))
    expected.append(len(drawn) - sum(expected))
    assert chisquare(counts, expected).pvalue > 1e-4


def test_words_at_a_values_border_are_decided_by_all_their_bits() -> None:
    """The cumulative probability of each value, to 2^-64, is where the next one begins."""
    shares = [exact(y, 8) for y in range(-96, 21)]
    for x in range(-20, 21):
        below = math.fsum(shares[: x + 96])
        for word, value in ((int(below * 2**64) + 2**14, x), (int(below * 2**64) - 2**14, x - 1)):
            parts = [(word >> 48).to_bytes(2, "little"), (word << 16 & (2**64 - 1)).to_bytes(8, "little")]
            assert small_gaussian(1, 8, lambda count, parts=parts: parts.pop(0)[:count])[0] == value
    assert small_gaussian(1, 8, bytes)[0] == -73  # what is smaller has less than 2^-64, all together


def test_no_two_streams_are_equal() -> None:
    assert not np.array_equal(small_gaussian(100, 8, keystream()), small_gaussian(100, 8, keystream()))
    with pytest.raises(ValueError, match="deviation"):
        small_gaussian(1, 11, keystream())
