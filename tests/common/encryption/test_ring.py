"""Products in the ring, against sums of shifted words; parameters have the security of the published table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from colonnade.common.encryption.parameters import DEGREE, FLOOD, LEAST_SIGMA, SIGMA, WORD, SumSize, security
from colonnade.common.encryption.ring import LONGEST, Public, forward, inverse, joined, sparse_forward, times_words
from colonnade.common.errors import InputError


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


# Homomorphic Encryption Standard (2018), Table 1, ternary secrets: N, then the largest log q for 128, 192 and 256 bits.
TABLE = """
1024   27   19   14
2048   54   37   29
4096  109   75   58
8192  218  152  118
16384 438  305  237
"""


def test_the_parameters_have_192_bits_by_the_published_table() -> None:
    for line in TABLE.split("\n")[1:-1]:
        degree, *most = map(int, line.split())
        for bits, word in zip((128, 192, 256), most, strict=True):
            assert security(degree, word) == bits
            assert security(degree, word + 1) < bits
    assert security(DEGREE, WORD, SIGMA) == 192
    assert security(DEGREE, WORD, LEAST_SIGMA / 1.01) == 0 and security(3000, 20) == 0


@given(st.integers(1, 3_000_000), st.integers(1, 15))
def test_an_error_is_below_half_a_step_and_no_sum_of_precise_numbers_leaves_the_range(rows: int, weight: int) -> None:
    try:
        size = SumSize(rows, weight)
    except InputError:
        return
    assert size.flood >= FLOOD * size.hidden
    assert 2 * size.largest_error <= size.step and size.step & (size.step - 1) == 0
    assert rows * weight * (2**size.precision - 1) <= size.largest_sum
    assert (size.largest_sum + 1) * size.step == 2**63


def test_what_does_not_fit_is_refused_before_a_run_with_the_largest_precision() -> None:
    size = SumSize(48_842)
    assert size.precision == 14
    size.refuse_large(14)
    with pytest.raises(InputError, match="sums over 48842 rows of numbers of 15 bits") as refused:
        size.refuse_large(15)
    assert refused.value.hint == "take at most 14 bits"
    with pytest.raises(InputError, match="leave no bit for a number"):
        SumSize(10**9, 15)
    for rows, weight in ((0, 1), (1, 0)):
        with pytest.raises(InputError):
            SumSize(rows, weight)


def test_hints_take_next_to_nothing_from_the_partys_secrets() -> None:
    size = SumSize(48_842)
    assert SIGMA / 2**0.5 > size.residual(10**4) > size.residual(10**8) > LEAST_SIGMA
    assert size.residual(size.most_answers) >= LEAST_SIGMA > size.residual(size.most_answers + 1000)
    assert min(SumSize(rows).most_answers for rows in (1, 10**6)) > 2**30
    assert size.disclosed(761, 3200) < 1e-4 and size.disclosed(761, 6400) == 2 * size.disclosed(761, 3200)
