"""Exact products of public polynomials with short ones in Z_{2^64}[X] / (X^4096 + 1), by FFTs of half the length.

A real polynomial is determined by its values at half of the roots of X^N + 1, which are one FFT of N/2 numbers. A
public polynomial is split into three signed limbs of at most 22 bits. Products are added up before they are rounded
as long as the bound of their error stays below a quarter.
"""

from __future__ import annotations

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from scipy.sparse import csr_array

from colonnade.common.encryption.parameters import DEGREE

Words = NDArray[np.uint64]
Spectrum = NDArray[np.complex128]
Halves = tuple[NDArray[np.int32], NDArray[np.int32]]

_HALF = DEGREE // 2
_FLOATS = 64  # rows of a matrix
_TWIST = np.exp(1j * np.pi * np.arange(_HALF) / DEGREE)
_TWISTS = np.concatenate([_TWIST, 1j * _TWIST])
_PLACES = (0, 22, 43)  # of the limbs in a word
_NORM = 2.0**21 * DEGREE**0.5  # of a limb, at most
_ERROR = 2.0**-53 * 132
"""Of a product's coefficient, relative to the product of the norms: Brent, Percival and Zimmermann 2007, Theorem 3, for
2^11 points and twiddle factors that are rounded correctly."""
LONGEST = 0.25 / (_ERROR * _NORM)
"""Sum of the norms of short polynomials whose products may be added up before rounding."""


def forward(polynomials: NDArray[np.float64]) -> Spectrum:
    """Values at half of the roots, complex (..., N/2), of real coefficients (..., N)."""
    folded = (polynomials[..., :_HALF] + 1j * polynomials[..., _HALF:]) * _TWIST
    return np.fft.ifft(folded, norm="forward")


def sparse_forward(matrix: csr_array, first: int, last: int) -> Spectrum:
    """`forward` of some rows of a matrix of at most N columns, of which most entries are 0: (last - first, N/2)."""
    ends = matrix.indptr[first : last + 1]
    entries = slice(int(ends[0]), int(ends[-1]))
    rows, columns = np.repeat(np.arange(last - first), np.diff(ends)), matrix.indices[entries]
    values = matrix.data[entries] * _TWISTS[columns]
    folded = np.zeros((last - first, _HALF), np.complex128)
    for half in (columns < _HALF, columns >= _HALF):  # an entry of each is at a place of its own
        folded[rows[half], columns[half] % _HALF] += values[half]
    return np.fft.ifft(folded, norm="forward")


def inverse(values: Spectrum) -> NDArray[np.float64]:
    """Coefficients (..., N), not yet rounded."""
    folded = np.fft.fft(values, norm="forward") * _TWIST.conj()
    return np.concatenate([folded.real, folded.imag], axis=-1)


def times_words(short: NDArray[np.number], words: Words) -> Words:
    """The matrix product of short whole numbers (b, N) and words (N, v) modulo 2^64, by exact products of floats.

    Raises ValueError if the numbers are too large for an exact product.
    """
    _refuse_long(short)
    both = _product(short, np.concatenate(halves(words), axis=1, dtype=np.float64))
    return both[:, : words.shape[1]] + (both[:, words.shape[1] :] << np.uint64(32))


def halves_times(words: Halves, short: NDArray[np.number]) -> Words:
    """As `times_words`, of words (b, N), in halves, and short numbers (N, v)."""
    _refuse_long(short.T)
    low, high = (_product(half, short.astype(np.float64)) for half in words)
    return low + (high << np.uint64(32))


def _refuse_long(short: NDArray[np.number]) -> None:
    if short.shape[-1] * float(np.abs(short).max(initial=0)) > 2**22:
        raise ValueError("numbers too large for an exact product")


def _product(a: NDArray[np.number], b: NDArray[np.float64]) -> Words:
    """By torch, whose number of threads is the member's; numpy's would wait for each other on a busy machine.

    Some rows of `a` at a time are floats, so that the processor's cache holds them.
    """
    found, by = np.empty((len(a), b.shape[1]), np.uint64), torch.from_numpy(b)
    for first in range(0, len(a), _FLOATS):
        part = torch.mm(torch.from_numpy(a[first : first + _FLOATS].astype(np.float64)), by)
        found[first : first + _FLOATS] = _whole(part.numpy())
    return found


def halves(words: Words) -> Halves:
    """low and high, signed, with words = low + 2^32 high modulo 2^64."""
    low = words.astype(np.uint32).view(np.int32)
    rest = words - low.astype(np.int64).view(np.uint64)
    return low, (rest >> np.uint64(32)).astype(np.uint32).view(np.int32)


def limbs(words: Words) -> NDArray[np.float64]:
    """Signed limbs (3, ...) with words = Σ 2^place limb modulo 2^64."""
    rest, found = words.view(np.int64), []
    for place, end in zip(_PLACES, (*_PLACES[1:], 64), strict=True):
        shift = np.int64(64 - (end - place))
        limb = (rest << shift) >> shift  # the lowest bits, with their sign
        found.append(limb.astype(np.float64))
        rest = (rest - limb) >> np.int64(end - place)
    return np.stack(found)


def _whole(numbers: NDArray[np.float64]) -> Words:
    return np.rint(numbers).astype(np.int64).view(np.uint64)


def joined(limbs: NDArray[np.float64]) -> Words:
    """Σ 2^place limb modulo 2^64, of limbs (3, ...) that are whole up to rounding and below 2^62."""
    low, middle, high = map(_whole, limbs)
    words: Words = low + (middle << np.uint64(_PLACES[1])) + (high << np.uint64(_PLACES[2]))
    return words


class Public:
    """The public matrix: polynomials a_0 ... a_{k-1} by a seed; row i of A is row i mod N of the matrix of a_{i // N}.

    Args:
        seed: 32 bytes.
        count: k.
    """

    def __init__(self, seed: bytes, count: int) -> None:
        stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor()
        words = np.frombuffer(stream.update(bytes(8 * count * DEGREE)), "<u8").reshape(count, DEGREE)
        self.words = words.astype(np.uint64)
        self._spectra = forward(limbs(self.words))  # (3, k, N/2)

    def __len__(self) -> int:
        return len(self.words)

    def times(self, secret: Spectrum, first: int, last: int) -> Words:
        """a_first s ... a_{last-1} s, (last - first, v, N), for the spectra of v secrets, (v, N/2)."""
        return joined(inverse(self._spectra[:, first:last, None] * secret))

    def transposed(self, block: int, short: Spectrum, into: Spectrum) -> None:
        """Adds M_j A_j to accumulated spectra (3, b, N/2), for the spectra of rows of M_j, (b, N/2)."""
        into += short * self._spectra[:, block, None].conj()
