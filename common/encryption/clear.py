"""The interface of linear.py without encryption, in the same fixed point."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from colonnade.common.encryption.linear import Answer, Hint, PartyMatrix, Sender, VectorKeys, Whole
from colonnade.common.encryption.parameters import DEGREE, SumSize
from colonnade.common.encryption.ring import Words

_LARGEST = 2**62


class ClearSender(Sender):
    """The server: its vectors travel as they are, and only the words' own range bounds their sums."""

    def __init__(self, size: SumSize) -> None:
        self.size, self.largest = size, _LARGEST

    def keys(self, vectors: int) -> VectorKeys:
        """No secrets; a dummy without rows."""
        nothing = np.empty((vectors, 0))
        return VectorKeys(nothing.astype(np.int8), np.empty((0, vectors), np.uint64), nothing.astype(np.complex128))

    def encrypt(self, keys: VectorKeys, vectors: Whole, block: int = 0) -> Words:
        """The vectors themselves. Raises InputError if sums could leave the range."""
        self.check(keys, vectors, block)
        return vectors.view(np.uint64)

    def decrypt(self, hint: Hint, keys: VectorKeys, sums: Words) -> Whole:  # noqa: ARG002  # the interface's
        """The sums themselves."""
        return sums.view(np.int64)


class ClearHolder:
    """The party: sums without noise."""

    def __init__(self, size: SumSize, matrix: PartyMatrix) -> None:
        self._size, self._matrix, self.answers = size, matrix, 0

    def hint(self) -> Iterator[Words]:
        """A hint of zeros, which nothing is computed from, without bins."""
        yield np.empty((0, DEGREE), np.uint64)

    def begin(self, dummy: Words) -> Answer:
        """Begins the sums of v vectors, with a dummy (0, v)."""
        self.answers += dummy.shape[1]
        return Answer(self._size, self._matrix, np.zeros((self._matrix.shape[0], dummy.shape[1]), np.uint64), None)
