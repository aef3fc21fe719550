"""Sums under encryption by learning with errors: linear, with a matrix that stays and vectors that change.

A party holds M (bins x rows; small whole numbers), the server vectors m; the server learns M m, the party nothing of m.

    once        both    A and a_d, by a public seed                                           (ring.py)
                party   H = M A + u a_d + e'                                                  -> server
    a vector    server  c = A s + e + Δ m,  c_d = a_d s + e_d, with a fresh s and fresh e     -> party
                party   y = M c + u c_d + f                                                   -> server
                server  round((y - H s) / Δ) = M m, as long as M e + u e_d - e' s + f is below Δ / 2

c hides m by ring-LWE with ternary s. H hides M A by ring-LWE with the secret u. The server knows e, e_d and s, so y
tells it M e + u e_d - e' s unless f hides them: f is FLOOD times as large (parameters.py). The construction is that of
SimplePIR (Henzinger, Hong, Corrigan-Gibbs, Meiklejohn and Vaikuntanathan 2023), with rings, and with u, e' and f
against a curious server. **A server that deviates** learns rows of M from vectors that it chooses for that.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import cache
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray
from scipy.sparse import csc_array

from colonnade.common.encryption.parameters import COARSE, DEGREE, FINE, SIGMA, SumSize
from colonnade.common.encryption.ring import (
    LONGEST,
    Public,
    Spectrum,
    Words,
    forward,
    halves,
    halves_times,
    inverse,
    joined,
    sparse_forward,
    times_words,
)
from colonnade.common.errors import InputError
from colonnade.common.privacy.laplace import Bits, uniform_below
from colonnade.common.privacy.sum_noise import discrete_gaussian

_FIRST = 16  # bits of a word that decide alone, but for one value in 300
_REST = 64 - _FIRST
_UNSURE = np.int8(-128)
_TAILS = 12  # deviations on each side of the table; words of 64 bits reach 9


def small_gaussian(count: int, sigma: int, bits: Bits) -> NDArray[np.int8]:
    """Independent x with P(x) proportional to exp(-x^2 / (2 sigma^2)), each probability to 2^-64.

    Args:
        sigma: 1 to 10.
        bits: source of randomness: 2 bytes a sample, 6 more for one in 300.
    """
    bounds, first = _tables(sigma)
    words = np.frombuffer(bits(2 * count), "<u2")
    drawn: NDArray[np.int8] = first[words]
    unsure = np.flatnonzero(drawn == _UNSURE)
    if unsure.size:
        rest = np.frombuffer(bits(8 * unsure.size), "<u8") >> np.uint64(_FIRST)
        whole = (words[unsure].astype(np.uint64) << np.uint64(_REST)) | rest
        drawn[unsure] = np.searchsorted(bounds, whole, side="right") - _TAILS * sigma
    return drawn


@cache
def _tables(sigma: int) -> tuple[NDArray[np.uint64], NDArray[np.int8]]:
    """The words at which the next value begins, uint64; and values by a word's first 16 bits, where these decide."""
    if not 1 <= sigma <= 10:
        raise ValueError(f"a deviation of {sigma}")
    values = range(-_TAILS * sigma, _TAILS * sigma + 1)
    with localcontext() as precise:
        precise.prec = 60
        weights = [(Decimal(-x * x) / (2 * sigma * sigma)).exp() for x in values]
        total, below, ends = sum(weights), Decimal(0), []
        for weight in weights[:-1]:
            below += weight
            ends.append(int(below / total * 2**64))
    bounds = np.array(ends, np.uint64)
    starts = np.arange(2**_FIRST, dtype=np.uint64) << np.uint64(_REST)
    low = np.searchsorted(bounds, starts, side="right")
    high = np.searchsorted(bounds, starts | np.uint64(2**_REST - 1), side="right")
    return bounds, np.where(low == high, low - _TAILS * sigma, _UNSURE).astype(np.int8)


Whole = NDArray[np.int64]

_AT_ONCE = 256  # bins whose spectra are in memory together
_BLOCKS = 16  # of rows, whose matrices are in memory together
_CACHED = 16  # bins whose spectra the processor's cache holds
_KEPT = 1 << 22  # entries, of 12 bytes
_LABEL = b"colonnade: sums under encryption, 1\n"


def public_matrix(nonces: Sequence[bytes], size: SumSize) -> Public:
    """A and, as its last polynomial, a_d. The nonces are of all members, in the roster's order: none chooses A."""
    found = hashlib.sha256(_LABEL)
    for nonce in nonces:
        found.update(len(nonce).to_bytes(8) + nonce)
    return Public(found.digest(), size.blocks + 1)


def keystream(key: bytes = b"") -> Bits:
    """A source of random bytes: ChaCha20 under a key of 32 bytes that is used once; the system's, if left out."""
    stream = Cipher(ChaCha20(key or os.urandom(32), bytes(16)), mode=None).encryptor()
    return lambda count: stream.update(bytes(count))


class PartyMatrix(Protocol):
    """The party's M, bins x rows."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def rows(self, first: int, last: int) -> csc_array:
        """Columns of M, which are the rows `first` to `last` of the table: whole numbers, (bins, last - first)."""


class Bins:
    """One-hot M of a table whose columns are numbers of bins.

    Args:
        codes: whole numbers (rows, columns): each column's bin, from 0.
    """

    def __init__(self, codes: NDArray[np.integer], counts: Sequence[int]) -> None:
        if codes.ndim != 2 or codes.shape[1] != len(counts):
            raise InputError(f"codes of shape {codes.shape} for {len(counts)} columns")
        if codes.size and (codes.min() < 0 or (codes.max(axis=0) >= np.asarray(counts)).any()):
            raise InputError("a bin that its column does not have")
        self._codes, self._first = codes, np.cumsum([0, *counts])
        self._made: dict[tuple[int, int], csc_array] = {}

    @property
    def shape(self) -> tuple[int, int]:
        return int(self._first[-1]), len(self._codes)

    def rows(self, first: int, last: int) -> csc_array:
        """One entry of 1 a column, in every row. Kept where the whole matrix is small."""
        if (found := self._made.get((first, last))) is not None:
            return found
        indices = (self._codes[first:last] + self._first[:-1]).astype(np.int32)
        ends, ones = np.arange(0, indices.size + 1, indices.shape[1], dtype=np.int32), np.ones(indices.size, np.int64)
        made = csc_array((ones, indices.ravel(), ends), shape=(self.shape[0], len(indices)))
        if self._codes.size <= _KEPT:
            self._made[first, last] = made
        return made


@dataclass
class VectorKeys:
    """The server's secrets of v vectors, which never leave its memory.

    Args:
        secrets: s, ternary, (v, N).
        dummy: c_d, (N, v), which goes to the party.
    """

    secrets: NDArray[np.int8] = field(repr=False)
    dummy: Words
    spectra: Spectrum = field(repr=False)

    def __reduce__(self) -> str:
        raise TypeError("secrets are not written anywhere")


class Sender:
    """The server: encrypts vectors, and decrypts sums of them, of a magnitude of at most `largest`.

    Args:
        public: the matrix, of `size.blocks` + 1 polynomials.
        source: randomness; the system's except in tests.
    """

    def __init__(self, size: SumSize, public: Public, source: Bits | None = None) -> None:
        if len(public) != size.blocks + 1:
            raise InputError(f"a matrix of {len(public)} blocks for {size.rows} rows")
        self.size, self.largest, self._public, self._bits = size, size.largest_sum, public, source or keystream()
        self._floods = np.empty(0, np.uint64)  # drawn in advance, as few draws cost as much as many

    def keys(self, vectors: int) -> VectorKeys:
        secrets = (uniform_below(3, vectors * DEGREE, self._bits) - 1).astype(np.int8).reshape(vectors, DEGREE)
        spectra = forward(secrets.astype(np.float64))
        last = self.size.blocks
        dummy = self._public.times(spectra, last, last + 1)[0] + self._errors(vectors, DEGREE)
        return VectorKeys(secrets, np.ascontiguousarray(dummy.T), spectra)

    def encrypt(self, keys: VectorKeys, vectors: Whole, block: int = 0) -> Words:
        """Ciphertexts c of consecutive rows, (rows, v).

        Args:
            keys: used for these vectors alone, and for each block of theirs once.
            vectors: m of the rows, int64 (rows, v): whole blocks, or up to the last row.
            block: the first row's.

        Raises InputError if sums of these rows could leave the range.
        """
        blocks, count = self.check(keys, vectors, block), vectors.shape[1]
        masks = (
            self._public.times(keys.spectra, block, block + blocks)
            .transpose(0, 2, 1)
            .reshape(-1, count)[: len(vectors)]
        )
        return masks + self._errors(*vectors.shape) + vectors.view(np.uint64) * np.uint64(self.size.step)

    def decrypt(self, hint: Hint, keys: VectorKeys, sums: Words) -> Whole:
        """M m, int64 (bins, v).

        Raises InputError if the sums belong to another hint or other keys, or the party deviates from the protocol.
        """
        return rounded(self.size, sums - hint.times(keys))

    def opened(self, hint: Hint, keys: VectorKeys, masked: Words) -> Words:
        """Sums that a party masked and can round itself, (bins, v): y - H s plus noise.

        The party subtracts its mask, and has Δ M m + M e + u e_d - e' s + F, of which it knows M, u and e': F, the
        server's, hides the errors and the secret from it, as a party's last noise hides M and u from the server. It
        does so only if H is a valid hint, which probe.py tests first. Called once per vectors.
        """
        if len(self._floods) < masked.size:
            self._floods = _flood((max(masked.size, _AT_ONCE**2),), self.size, self._bits)
        noise, self._floods = np.split(self._floods, [masked.size])
        return masked - hint.times(keys) + noise.reshape(masked.shape)

    def check(self, keys: VectorKeys, vectors: Whole, block: int) -> int:
        """The number of blocks of the rows. Raises InputError as `encrypt`."""
        rows, count = vectors.shape
        if count != len(keys.secrets):
            raise InputError(f"{count} vectors for {len(keys.secrets)} keys")
        if (most := self._largest(vectors)) > self.largest:
            raise InputError(f"a sum of up to {most} leaves the range of {self.largest}", hint="take fewer bits")
        left = self.size.rows - block * DEGREE
        if rows > left or (rows % DEGREE and rows != left):
            raise InputError(f"{rows} rows are neither whole blocks nor the last ones")
        blocks: int = -(-rows // DEGREE)
        return blocks

    def _largest(self, vectors: Whole) -> int:
        """Upper bound of the magnitude of any sum over these rows."""
        if vectors.size and np.abs(vectors.astype(np.float64)).max() * len(vectors) >= 2.0**62:
            return self.largest + 1
        positive = np.maximum(vectors, 0).sum(axis=0)
        negative = positive - vectors.sum(axis=0)
        return int(max(positive.max(initial=0), negative.max(initial=0))) * self.size.weight

    def _errors(self, *shape: int) -> Words:
        return _words(small_gaussian(math.prod(shape), SIGMA, self._bits)).reshape(shape)


class Hint:
    """H as the server keeps it, (bins, N), ready for products with secrets."""

    def __init__(self, words: Words) -> None:
        if words.ndim != 2 or words.shape[1] != DEGREE:
            raise InputError(f"a hint of shape {words.shape}")
        self._halves = halves(words)

    def times(self, keys: VectorKeys) -> Words:
        """H s, (bins, v)."""
        return halves_times(self._halves, keys.secrets.T)


class Holder:
    """The party: its columns, the hint about them, and sums.

    Args:
        matrix: M; its entries are at most `size.weight`.
    """

    def __init__(self, size: SumSize, public: Public, matrix: PartyMatrix, source: Bits | None = None) -> None:
        if size.blocks * size.weight * DEGREE**0.5 > LONGEST / 2:
            raise InputError(f"{size.rows} rows with weights up to {size.weight} are too many for an exact hint")
        if matrix.shape[1] != size.rows:
            raise InputError(f"a matrix over {matrix.shape[1]} rows for sums over {size.rows}")
        self._size, self._public, self._matrix, self._bits = size, public, matrix, source or keystream()
        self._masks = small_gaussian(matrix.shape[0] * DEGREE, SIGMA, self._bits).reshape(-1, DEGREE)  # u
        self.answers = 0
        """Vectors that were answered under this hint."""

    def hint(self) -> Iterator[Words]:
        """H, in parts of up to 256 bins. Called once, as it draws e' here: the mean of many hints would have less of
        e'.
        """
        bins = self._matrix.shape[0]
        for first in range(0, bins, _AT_ONCE):
            last = min(first + _AT_ONCE, bins)
            noise = small_gaussian((last - first) * DEGREE, SIGMA, self._bits)
            yield self._masked(first, last) + _words(noise).reshape(-1, DEGREE)

    def begin(self, dummy: Words) -> Answer:
        """Begins the sums of v vectors, with their c_d, (N, v).

        A vector that was answered before is answered with fresh noise: the argument for the hint counts every answer as
        one to the same vector, and a server that repeats one departs from the protocol. Raises InputError if they are
        more than the hint is safe for.
        """
        if dummy.shape[0] != DEGREE:
            raise InputError(f"a dummy of shape {dummy.shape}")
        if self.answers + dummy.shape[1] > self._size.most_answers:
            raise InputError(
                f"more than {self._size.most_answers} answers under one hint", hint="resume: a session has its own hint"
            )
        self.answers += dummy.shape[1]
        return Answer(self._size, self._matrix, times_words(self._masks, dummy), self._bits)

    def _masked(self, first: int, last: int) -> Words:
        """Rows `first` to `last` of M A + u a_d."""
        spectra = np.zeros((3, last - first, DEGREE // 2), np.complex128)
        for begin in range(0, self._size.blocks, _BLOCKS):
            numbers = range(begin, min(begin + _BLOCKS, self._size.blocks))
            matrices = [
                self._matrix.rows(number * DEGREE, min((number + 1) * DEGREE, self._size.rows)).tocsr()[first:last]
                for number in numbers
            ]
            for place in range(0, last - first, _CACHED):
                into = spectra[:, place : place + _CACHED]
                for number, matrix in zip(numbers, matrices, strict=True):
                    self._public.transposed(number, sparse_forward(matrix, place, place + into.shape[1]), into)
        self._public.transposed(self._size.blocks, forward(self._masks[first:last].astype(np.float64)), spectra)
        return joined(inverse(spectra))


class Answer:
    """Sums of some vectors, whose ciphertexts arrive in blocks of rows."""

    def __init__(self, size: SumSize, matrix: PartyMatrix, masks: Words, source: Bits | None) -> None:
        self._size, self._matrix, self._sums, self._bits, self._next = size, matrix, masks, source, 0

    def add(self, ciphertexts: Words) -> None:
        """Adds the next rows, (rows, v).

        Raises:
            InputError: too many rows, or another number of vectors.
        """
        last = self._next + len(ciphertexts)
        if last > self._size.rows or ciphertexts.shape[1] != self._sums.shape[1]:
            raise InputError(f"ciphertexts of shape {ciphertexts.shape} after {self._next} of {self._size.rows} rows")
        block = self._matrix.rows(self._next, last)
        self._sums += (block.astype(np.int64, copy=False) @ ciphertexts.view(np.int64)).view(np.uint64)
        self._next = last

    def end(self) -> Words:
        """y, (bins, v). Raises InputError if rows are missing."""
        if self._bits is None:
            return self._all()
        return self._all() + _flood(self._sums.shape, self._size, self._bits)

    def masked(self) -> tuple[Words, Words]:
        """M c + u c_d under a uniform mask, which hides it from the server whatever c is; and the mask: (bins, v)."""
        sums = self._all()
        mask = np.frombuffer((self._bits or keystream())(8 * sums.size), np.uint64).reshape(sums.shape)
        return sums + mask, mask

    def with_noise(self, deviation: int) -> Words:
        """y with last noise of this deviation instead of FLOOD's, (bins, v)."""
        assert self._bits is not None  # encrypted
        noise = discrete_gaussian(self._sums.size, deviation, self._bits)
        return self._all() + noise.view(np.uint64).reshape(self._sums.shape)

    def _all(self) -> Words:
        if self._next != self._size.rows:
            raise InputError(f"{self._next} of {self._size.rows} rows")
        return self._sums


def rounded(size: SumSize, words: Words) -> Whole:
    """M m from words Δ M m + error, int64 in their shape.

    Raises InputError if the error is too large: a hint, a vector or a mask does not belong to the sums.
    """
    step = np.uint64(size.step)
    found: Whole = (words + step // np.uint64(2)).view(np.int64) >> np.int64(size.step.bit_length() - 1)
    error = (words - found.view(np.uint64) * step).view(np.int64)
    if (np.abs(error) > size.largest_error).any() or (np.abs(found) > size.largest_sum).any():
        raise InputError("sums that do not belong to the hint and the vectors", hint="begin the run anew")
    return found


def _flood(shape: tuple[int, ...], size: SumSize, source: Bits) -> Words:
    """A discrete Gaussian of deviation `size.flood`."""
    count = math.prod(shape)
    flood = discrete_gaussian(count, FINE, source) + COARSE * discrete_gaussian(count, size.coarse, source)
    return flood.view(np.uint64).reshape(shape)


def _words(numbers: NDArray[np.integer]) -> Words:
    return numbers.astype(np.int64).view(np.uint64)
