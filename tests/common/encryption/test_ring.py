"""Products in the ring, against sums of shifted words."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from colonnade.common.encryption.parameters import DEGREE
from colonnade.common.encryption.ring import LONGEST, Public, forward, inverse, joined, sparse_forward, times_words


def shifted(words: NDArray[np.uint64], places: int) -> NDArray[np.uint64]:
    """X^places words."""
    found = np.roll(words, places)
    found[:places] = np.uint64(0) - found[:places]
    return found


def product(words: NDArray[np.uint64], short: NDArray[np.int64]) -> NDArray[np.uint64]:
    found = np.zeros(DEGREE, np.uint64)
    for place in np.flatnonzero(short):
        found += shifted(words, place) * np.uint64(int(short[place]) % 2**64)
    return found


class Given(Public):
    """A matrix of given words."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        super().__init__(bytes(32), 1)
        from colonnade.common.encryption import ring

        self.words = words[None]
        self._spectra = forward(ring.limbs(self.words))


RNG = np.random.default_rng(5)
WORDS = {
    "random": RNG.integers(0, 2**64, DEGREE, np.uint64),
    "largest": np.full(DEGREE, 2**63, np.uint64),
    "ones": np.full(DEGREE, 2**64 - 1, np.uint64),
    "limbs": np.full(DEGREE, 2**21 + 2**42 + 2**63 - 1, np.uint64),
}


@pytest.mark.parametrize("name", WORDS)
def test_products_are_exact(name: str) -> None:
    public = Given(WORDS[name])
    for short in (RNG.integers(-1, 2, DEGREE), np.ones(DEGREE, np.int64), RNG.integers(-96, 97, DEGREE)):
        got = public.times(forward(short[None].astype(float)), 0, 1)[0, 0]
        assert np.array_equal(got, product(WORDS[name], short))


def test_products_with_the_transposed_matrix_are_exact() -> None:
    """Row r of the matrix of a is the coefficients of which (a s)_r is the inner product with s."""
    words, short = WORDS["random"], RNG.integers(-96, 97, DEGREE)
    reversed_ = words[::-1].copy()  # row r is X^{r+1} of it, but for the sign
    want = np.zeros(DEGREE, np.uint64)
    for row in range(DEGREE):
        a_r = np.where(np.arange(DEGREE) > row, np.uint64(0) - np.roll(reversed_, row + 1), np.roll(reversed_, row + 1))
        want += a_r * np.uint64(int(short[row]) % 2**64)
    spectra = np.zeros((3, 1, DEGREE // 2), np.complex128)
    Given(words).transposed(0, forward(short[None].astype(float)), spectra)
    assert np.array_equal(joined(inverse(spectra))[0], want)


def test_as_many_products_may_be_added_up_as_the_bound_says() -> None:
    """Far more than a table has blocks: a bound of the error, which the error itself stays far below."""
    public, ones = Given(WORDS["largest"]), forward(np.ones((1, DEGREE)))
    times = int(LONGEST / DEGREE**0.5)
    assert times > 500
    spectra = np.zeros((3, 1, DEGREE // 2), np.complex128)
    for _ in range(times):
        public.transposed(0, ones, spectra)
    exact = inverse(spectra)
    assert np.abs(exact - np.rint(exact)).max() < 0.25


def test_spectra_of_sparse_rows_are_those_of_dense_ones() -> None:
    dense = RNG.integers(-3, 4, (7, DEGREE)) * (RNG.random((7, DEGREE)) < 0.01)
    dense[3], dense[5] = 0, 1  # nothing, and both halves of every place
    found = sparse_forward(csr_array(dense), 2, 6)
    np.testing.assert_allclose(found, forward(dense[2:6].astype(float)), rtol=0, atol=1e-9)


def test_products_of_matrices_are_exact_or_refused() -> None:
    short = RNG.integers(-96, 97, (5, DEGREE))
    words = np.stack([WORDS["random"], WORDS["ones"], WORDS["largest"]], 1)
    want = short.astype(np.uint64) @ words
    assert np.array_equal(times_words(short.astype(float), words), want)
    with pytest.raises(ValueError, match="too large"):
        times_words(np.full((1, DEGREE), 2000.0), words)


def test_a_seed_gives_one_matrix() -> None:
    first, again, other = Public(bytes(32), 2), Public(bytes(32), 2), Public(b"1" * 32, 2)
    assert np.array_equal(first.words, again.words) and not np.array_equal(first.words, other.words)
    assert first.words[0, :2].tolist() == [0x903DF1A0ADE0B876, 0x28BD8653E56A5D40]  # ChaCha20 of zeros, RFC 8439
