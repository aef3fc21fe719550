"""Sums under encryption are the sums in the clear, and each side sees noise."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csc_array
from scipy.stats import chisquare

from colonnade.common.encryption.clear import ClearHolder, ClearSender, in_groups, sums_of_groups
from colonnade.common.encryption.linear import Bins, Hint, Holder, PartyMatrix, Sender, VectorKeys, public_matrix
from colonnade.common.encryption.parameters import DEGREE, SumSize
from colonnade.common.errors import InputError

NONCES = [b"server", b"bank", b"shop"]


class Digits:
    """A matrix of small numbers that is not one-hot."""

    def __init__(self, entries: NDArray[np.int64]) -> None:
        self.entries, self.shape = entries, (entries.shape[1], len(entries))

    def rows(self, first: int, last: int) -> csc_array:
        return csc_array(self.entries[first:last].T)


class Pair:
    """A server and a party."""

    def __init__(self, size: SumSize, matrix: PartyMatrix, *, clear: bool = False) -> None:
        public = None if clear else public_matrix(NONCES, size)
        self.sender = ClearSender(size) if public is None else Sender(size, public)
        self.holder = ClearHolder(size, matrix) if public is None else Holder(size, public, matrix)
        self.table = np.concatenate(list(self.holder.hint()))
        self.hint = Hint(self.table)

    def sums(self, vectors: NDArray[np.int64], part: int = 10**9) -> NDArray[np.int64]:
        keys = self.sender.keys(vectors.shape[1])
        answer = self.holder.begin(keys.dummy)
        for first in range(0, len(vectors), part):
            answer.add(self.sender.encrypt(keys, vectors[first : first + part], first // DEGREE))
        return self.sender.decrypt(self.hint, keys, answer.end())


def bins(rng: np.random.Generator, rows: int, counts: list[int]) -> Bins:
    return Bins(np.stack([rng.integers(0, count, rows) for count in counts], 1).astype(np.uint8), counts)


@settings(max_examples=12, deadline=None)
@given(
    rows=st.one_of(st.integers(1, 9000), st.sampled_from([DEGREE - 1, DEGREE, DEGREE + 1, 2 * DEGREE])),
    counts=st.lists(st.integers(1, 90), min_size=1, max_size=4), weight=st.sampled_from([0, 1, 15]),
    vectors=st.integers(1, 3), seed=st.integers(0, 2**32), extreme=st.booleans(),
)  # fmt: skip
def test_encrypted_sums_are_the_clear_ones(
    rows: int, counts: list[int], weight: int, vectors: int, seed: int, extreme: bool
) -> None:
    rng = np.random.default_rng(seed)
    matrix: PartyMatrix = bins(rng, rows, counts)
    if weight:
        matrix = Digits(rng.integers(-weight, weight + 1, (rows, sum(counts))))
    size = SumSize(rows, max(weight, 1))
    most = 2**size.precision - 1
    values = np.full((rows, vectors), most) if extreme else rng.integers(-most, most + 1, (rows, vectors))
    want = matrix.rows(0, rows).astype(np.int64) @ values
    assert np.array_equal(Pair(size, matrix).sums(values, DEGREE), want)
    assert np.array_equal(Pair(size, matrix, clear=True).sums(values, DEGREE), want)


@given(
    rows=st.integers(1, 50), counts=st.lists(st.integers(1, 9), min_size=1, max_size=3), outputs=st.integers(1, 3),
    groups=st.integers(1, 5), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_sums_of_groups_are_those_of_their_vectors(
    rows: int, counts: list[int], outputs: int, groups: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    block = bins(rng, rows, counts).rows(0, rows)
    numbers = rng.integers(-(2**40), 2**40, (rows, 2 * outputs))
    owner = rng.integers(outputs, size=groups)  # every group is of one output
    places = np.stack([
        rng.choice(np.append(np.flatnonzero(owner == output), -1), rows) for output in range(outputs)
    ], axis=1)  # fmt: skip
    want = block @ in_groups(numbers, places, groups)
    assert np.array_equal(sums_of_groups(block, numbers, places, groups), want)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair(SumSize(6000), bins(np.random.default_rng(3), 6000, [8, 60]))


def test_what_each_side_receives_looks_uniform_and_never_repeats(pair: Pair) -> None:
    """The ciphertexts of all zeros and of the largest numbers, and the hint, byte by byte."""
    most = 2**pair.sender.size.precision - 1
    seen = [pair.table]
    for vectors in (np.zeros((6000, 2), np.int64), np.full((6000, 2), most)):
        for _ in range(2):
            keys = pair.sender.keys(2)
            seen += [keys.dummy, pair.sender.encrypt(keys, vectors)]
    assert len({words.tobytes() for words in seen}) == len(seen)
    for words in seen:
        for byte in (0, 7):
            counts = np.bincount(np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8)[:, byte], minlength=256)
            assert chisquare(counts).pvalue > 1e-6


def test_a_sums_error_is_the_flood_and_hides_the_rest(pair: Pair) -> None:
    size, vectors = pair.sender.size, np.random.default_rng(1).integers(-9, 10, (6000, 64))
    keys = pair.sender.keys(64)
    answer = pair.holder.begin(keys.dummy)
    answer.add(pair.sender.encrypt(keys, vectors))
    sums = answer.end()
    want = pair.sender.decrypt(pair.hint, keys, sums)
    errors = (sums - pair.hint.times(keys) - want.view(np.uint64) * np.uint64(size.step)).view(np.int64)
    assert abs(errors.std() / size.flood - 1) < 0.05 and np.abs(errors).max() < size.largest_error / 2
    assert abs(errors.mean()) < 4 * size.flood / errors.size**0.5


def test_equal_vectors_have_different_answers(pair: Pair) -> None:
    keys, vectors = pair.sender.keys(1), np.ones((6000, 1), np.int64)
    sent = pair.sender.encrypt(keys, vectors)
    before, found = pair.holder.answers, []
    for _ in range(2):
        answer = pair.holder.begin(keys.dummy)
        answer.add(sent)
        found.append(answer.end().tobytes())
    assert found[0] != found[1] and pair.holder.answers == before + 2


Wrong = Callable[[Pair], object]


def altered(pair: Pair) -> object:
    keys = pair.sender.keys(2)
    answer = pair.holder.begin(keys.dummy)
    answer.add(pair.sender.encrypt(keys, np.zeros((6000, 2), np.int64)))
    return pair.sender.decrypt(pair.hint, keys, answer.end() + np.uint64(pair.sender.size.step // 2))


def other_hint(pair: Pair) -> object:
    keys = pair.sender.keys(2)
    other = Hint(pair.table[::-1].copy())
    answer = pair.holder.begin(keys.dummy)
    answer.add(pair.sender.encrypt(keys, np.zeros((6000, 2), np.int64)))
    return pair.sender.decrypt(other, keys, answer.end())


def missing_rows(pair: Pair) -> object:
    keys = pair.sender.keys(2)
    answer = pair.holder.begin(keys.dummy)
    answer.add(pair.sender.encrypt(keys, np.zeros((DEGREE, 2), np.int64)))
    return answer.end()


def too_many_rows(pair: Pair) -> object:
    keys = pair.sender.keys(2)
    answer = pair.holder.begin(keys.dummy)
    sent = pair.sender.encrypt(keys, np.zeros((6000, 2), np.int64))
    answer.add(sent)
    answer.add(sent)
    return None


def encrypted(rows: int, count: int, value: int = 0, block: int = 0) -> Wrong:
    return lambda pair: pair.sender.encrypt(pair.sender.keys(2), np.full((rows, count), value), block)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (altered, "do not belong to the hint"), (other_hint, "do not belong to the hint"),
        (missing_rows, "4096 of 6000 rows"), (too_many_rows, "after 6000 of 6000 rows"),
        (encrypted(6000, 3), "3 vectors for 2 keys"), (encrypted(5000, 2), "neither whole blocks nor the last"),
        (encrypted(DEGREE, 2, block=1), "neither whole blocks nor the last"),
        (encrypted(6000, 2, 2**20), "leaves the range of"), (encrypted(6000, 2, -(2**62)), "leaves the range of"),
        (lambda pair: pair.holder.begin(np.zeros((5, 2), np.uint64)), "dummy of shape"),
        (lambda _: Hint(np.zeros((2, 5), np.uint64)), "hint of shape"),
        (lambda _: Bins(np.array([[0, 3]]), [1, 3]), "a bin that its column does not have"),
        (lambda _: Bins(np.array([[0, -1]]), [1, 3]), "a bin that its column does not have"),
        (lambda _: Bins(np.array([[0]]), [1, 3]), "codes of shape"),
        (lambda _: Sender(SumSize(5000), public_matrix(NONCES, SumSize(5))), "a matrix of 2 blocks"),
        (lambda _: Pair(SumSize(5), Bins(np.zeros((4, 1), np.int64), [1])), "a matrix over 4 rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(pair: Pair, wrong: Wrong, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        wrong(pair)


def test_secrets_are_neither_printed_nor_written(pair: Pair) -> None:
    keys = pair.sender.keys(1)
    assert "secrets" not in repr(keys) and "spectra" not in repr(keys)
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(keys)


def test_every_member_has_a_share_in_the_matrix() -> None:
    size = SumSize(5)
    seen = {
        public_matrix(nonces, size).words.tobytes() for nonces in (NONCES, NONCES[::-1], [b"serverb", b"ank", b"shop"])
    }
    assert len(seen) == 3


def test_secrets_are_ternary_and_uniform() -> None:
    size = SumSize(5)
    keys: VectorKeys = Sender(size, public_matrix(NONCES, size), random.Random(4).randbytes).keys(50)
    assert chisquare(np.bincount(keys.secrets.ravel() + 1, minlength=3)).pvalue > 1e-4
