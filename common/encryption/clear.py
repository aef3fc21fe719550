"""The interface of linear.py without encryption, in the same fixed point."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csc_array

from colonnade.common.encryption.linear import Answer, Hint, PartyMatrix, Sender, VectorKeys, Whole
from colonnade.common.encryption.parameters import DEGREE, SumSize
from colonnade.common.encryption.ring import Words
from colonnade.common.errors import InputError

_LARGEST = 2**62


def in_groups(numbers: Whole, places: Whole, groups: int) -> Whole:
    """Vectors of groups of rows, int64 (rows, 2 groups): gradients of each group, then Hessians, zeros outside it.

    Args:
        numbers: gradients of every output, then Hessians, int64 (rows, 2 outputs).
        places: number of a row's group, or -1, by output: int64 (rows, outputs).

    Raises:
        InputError: a wrong number of outputs, or an unknown group.
    """
    outputs = places.shape[1]
    if numbers.shape[1] != 2 * outputs:
        raise InputError(f"{numbers.shape[1]} numbers of {outputs} outputs")
    if places.size and not -1 <= int(places.min()) <= int(places.max()) < groups:
        raise InputError(f"groups {places.min()} to {places.max()} of {groups}")
    found = np.zeros((len(numbers), 2 * groups), np.int64)
    for output in range(outputs):
        at = np.flatnonzero(places[:, output] >= 0)
        place = places[at, output]
        found[at, place], found[at, groups + place] = numbers[at, output], numbers[at, outputs + output]
    return found


def sums_of_groups(block: csc_array, numbers: Whole, places: Whole, groups: int) -> Whole:
    """Sums of these vectors over bins, int64 (bins, 2 groups), from the rows of groups alone.

    Args:
        block: one-hot columns of the rows, with a 1 in each column of the table (linear.py, `Bins`).
        numbers, places, groups: as for `in_groups`.
    """
    outputs, bins = places.shape[1], block.shape[0]
    found, of_row = np.zeros((bins, 2, groups), np.int64), block.indices.reshape(len(numbers), -1)
    for output in range(outputs):
        at = np.flatnonzero(places[:, output] >= 0)
        index = (of_row[at] * groups + places[at, output, None].astype(np.int32)).ravel()
        ends = np.arange(0, index.size + 1, of_row.shape[1], dtype=np.int32)
        by_group = csc_array((np.ones(index.size, np.int64), index, ends), shape=(bins * groups, len(at)))
        both = np.ascontiguousarray(numbers[at][:, [output, outputs + output]])
        found += (by_group @ both).reshape(bins, groups, 2).transpose(0, 2, 1)
    return found.reshape(bins, 2 * groups)


class ClearSender(Sender):
    """The server without encryption; only the words' own range bounds its sums."""

    def __init__(self, size: SumSize) -> None:
        self.size, self.largest = size, _LARGEST

    def keys(self, vectors: int) -> VectorKeys:
        nothing = np.empty((vectors, 0))
        return VectorKeys(nothing.astype(np.int8), np.empty((0, vectors), np.uint64), nothing.astype(np.complex128))

    def encrypt(self, keys: VectorKeys, vectors: Whole, block: int = 0) -> Words:
        """The vectors themselves. Raises InputError if sums could leave the range."""
        self.check(keys, vectors, block)
        return vectors.view(np.uint64)

    def decrypt(self, hint: Hint, keys: VectorKeys, sums: Words) -> Whole:  # noqa: ARG002  # the interface's
        return sums.view(np.int64)

    def opened(self, hint: Hint, keys: VectorKeys, masked: Words) -> Words:  # noqa: ARG002  # the interface's
        return masked


class ClearHolder:
    """The party: sums without noise."""

    def __init__(self, size: SumSize, matrix: PartyMatrix) -> None:
        self._size, self._matrix, self.answers = size, matrix, 0

    def hint(self) -> Iterator[Words]:
        """An unused hint of zeros, without bins."""
        yield np.empty((0, DEGREE), np.uint64)

    def begin(self, dummy: Words) -> Answer:
        """Begins the sums of v vectors; the dummy is (0, v)."""
        self.answers += dummy.shape[1]
        return Answer(self._size, self._matrix, np.zeros((self._matrix.shape[0], dummy.shape[1]), np.uint64), None)
