"""Records on the disk that an alignment would otherwise hold in memory, and sorting them bucket by bucket.

A bucket holds the records whose first bytes are in one range; one at a time is in memory.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import reduce
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.alignment.messages import BLOCK
from colonnade.common.crypto.group import ELEMENT
from colonnade.common.errors import ContractError, InputError, disk_faults

Records = NDArray[np.uint8]  # (records, width)

NUMBER = 8  # bytes of a position


class Scratch:
    """A file of records of one width. Its pages are in the system's cache, not in the process's memory.

    The file has no name, so no other process can open it; it is removed with this object or when the process ends.

    Args:
        folder: on the disk that holds it; None for the system's temporary folder.

    Raises EnvironmentFault if the disk refuses it; also raised by methods that write or read.
    """

    def __init__(self, width: int, folder: Path | None = None) -> None:
        self._width, self._folder = width, folder
        with self._refused():
            file = TemporaryFile(buffering=0, dir=folder)  # noqa: SIM115  # closed with this object
        self._fd = file.fileno()
        # Not earlier: a thread whose caller was cancelled may still write.
        weakref.finalize(self, file.close)

    def write(self, at: int, records: Records) -> None:
        """Writes records (n, width) from a position on; unwritten records are zeros."""
        self._move(os.pwritev, at, np.ascontiguousarray(records))

    def read(self, at: int, count: int) -> Records:
        records = np.empty((count, self._width), dtype=np.uint8)
        self._move(os.preadv, at, records)
        return records

    def pick(self, rows: NDArray[np.int64]) -> Records:
        """Reads written records at any positions."""
        if not len(rows):
            return np.empty((0, self._width), dtype=np.uint8)
        with self._refused():
            pages = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)
        return np.frombuffer(pages, dtype=np.uint8).reshape(-1, self._width)[rows]

    def numbers(self, count: int) -> Tensor:
        """The first `count` positions of a file of positions, int64 (count,), mapped rather than read."""
        if not count:
            return torch.empty(0, dtype=torch.int64)
        with self._refused():
            pages = mmap.mmap(self._fd, count * NUMBER, access=mmap.ACCESS_COPY)
        return torch.frombuffer(pages, dtype=torch.int64)

    def _move(self, call: Callable[[int, list[memoryview], int], int], at: int, records: Records) -> None:
        left, place = memoryview(records.reshape(-1).data), at * self._width
        with self._refused():
            while left:
                if not (done := call(self._fd, [left], place)):
                    raise OSError(0, "it ends early")
                left, place = left[done:], place + done

    def _refused(self) -> AbstractContextManager[None]:
        return disk_faults(
            f"rows cannot be aligned by way of {self._folder or gettempdir()}",
            "make room there: an alignment needs some 100 bytes a key and member, until it ends",
        )


def to_records(numbers: Tensor) -> Records:
    """Positions, int64 (n,), as records (n, 8)."""
    return numbers.contiguous().numpy().reshape(-1, 1).view(np.uint8)


def to_numbers(records: Records) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(records).view(np.int64).reshape(-1))


def places_of(span: slice) -> Records:
    return to_records(torch.arange(span.start, span.stop))


BUCKET = 16384  # maximum records of a bucket on average

_MOST_BITS = 16  # of the two bytes that select a record's bucket
_SPARE = 128  # over twice the average, which random bytes practically never reach


class Sorter:
    """Records that begin with random bytes, in ascending order of these.

    Random bytes fill all buckets about equally. Chosen bytes may not; since a bucket is held in memory, one that is too
    full is refused.

    Args:
        key: bytes of the sort key at the beginning of a record, 2 or more.
        bucket: maximum records of a bucket on average.
    """

    def __init__(self, rows: int, key: int, width: int, folder: Path | None, bucket: int = BUCKET) -> None:
        self._bits = min(((rows - 1) // bucket).bit_length(), _MOST_BITS)
        buckets = 1 << self._bits
        self._room = min(rows, 2 * -(-rows // buckets) + _SPARE)
        self._key, self._file = key, Scratch(width, folder)
        self._filled = np.zeros(buckets, dtype=np.int64)

    def add(self, records: Records) -> None:
        """Adds records (n, width) to their buckets.

        Raises InputError if their first bytes are not random, or there are more records than were announced.
        """
        first = records[:, 0].astype(np.int64) << 8 | records[:, 1]
        buckets = first >> (_MOST_BITS - self._bits)
        counts = np.bincount(buckets, minlength=len(self._filled))
        if int((self._filled + counts).max()) > self._room:
            raise InputError("many that begin with the same bytes")
        together, at = records[np.argsort(buckets, kind="stable")], 0
        for bucket in np.flatnonzero(counts).tolist():
            end = at + int(counts[bucket])
            self._file.write(bucket * self._room + int(self._filled[bucket]), together[at:end])
            at = end
        self._filled += counts

    def sorted(self) -> Iterator[Records]:
        """All records in ascending order, a bucket at a time; sorters with equal `rows` yield equally many buckets."""
        for bucket, filled in enumerate(self._filled.tolist()):
            records = self._file.read(bucket * self._room, filled)
            yield records[np.argsort(words(records, self._key))]


def words(records: Records, key: int) -> NDArray[np.bytes_]:
    """The first bytes of every record as one comparable value, (n,)."""
    return np.ascontiguousarray(records[:, :key]).view(f"S{key}").reshape(-1)


def again(ascending: NDArray[np.bytes_]) -> int:
    """Number of words of an ascending list that equal the one before."""
    return int((ascending[1:] == ascending[:-1]).sum())


def compare(
    lists: Mapping[str, Sorter], folder: Path | None = None, width: int = ELEMENT
) -> tuple[int, dict[str, Scratch]]:
    """Finds the elements that are in all lists, and their positions in each.

    The result is in the order of the raised elements, which is random to all members.

    Args:
        lists: by owner, elements of `width` bytes and their positions; with equal numbers of buckets.

    Returns:
        The number of common elements, and as many positions for every list: the n-th of each is the same element.

    Raises ContractError if a list repeats an element.
    """
    places, common = {owner: Scratch(NUMBER, folder) for owner in lists}, 0
    for buckets in zip(*(elements.sorted() for elements in lists.values()), strict=True):
        ascending = [words(bucket, width) for bucket in buckets]
        for owner, own in zip(lists, ascending, strict=True):
            if twice := again(own):
                raise ContractError(owner, "Points", "points", "every element once", f"{twice} again")
        both = reduce(lambda one, other: np.intersect1d(one, other, assume_unique=True), ascending)
        for owner, own, bucket in zip(lists, ascending, buckets, strict=True):
            places[owner].write(common, bucket[np.searchsorted(own, both), width:])
        common += len(both)
    return common, places


def distinct(rows: Tensor, size: int) -> bool:
    """True if no row number repeats; uses one bit for each of `size` rows."""
    seen = np.zeros(-(-size // 8), dtype=np.uint8)
    for some in torch.split(rows, BLOCK):
        np.bitwise_or.at(seen, some.numpy() >> 3, np.left_shift(1, some.numpy() & 7).astype(np.uint8))
    return int(np.bitwise_count(seen).sum()) == len(rows)
