"""Keys of a member's rows, in the form in which members compare them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from colonnade.common.alignment.scratch import Sorter, again, words
from colonnade.common.config.alignment import KeysConfig
from colonnade.common.errors import DataError

_HASH = 32  # bytes: collision-resistant
_BLOCK = 8192  # keys that are hashed at a time


class Values(Protocol):
    def __getitem__(self, row: int, /) -> bytes: ...

    def __iter__(self) -> Iterator[bytes]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class _Compared:
    """A table's keys in compared form, computed on access, so that they are not stored twice."""

    ids: Sequence[str]
    config: KeysConfig

    def __getitem__(self, row: int, /) -> bytes:
        return self.config.normal(self.ids[row]).encode(errors="surrogatepass")

    def __iter__(self) -> Iterator[bytes]:
        return (value for some in self.blocks() for value in some)

    def __len__(self) -> int:
        return len(self.ids)

    def blocks(self) -> Iterator[list[bytes]]:
        for start in range(0, len(self.ids), _BLOCK):
            some = self.ids[start : start + _BLOCK]
            yield [key.encode(errors="surrogatepass") for key in self.config.normals(some)]


@dataclass(frozen=True)
class RowKeys:
    """A member's keys in compared form, one a row, without duplicates.

    Args:
        values: UTF-8, in the order of rows.
        folder: on the disk that holds an alignment's lists while it runs; None for the system's temporary folder.
    """

    values: Values
    folder: Path | None = field(default=None, compare=False)

    @classmethod
    def of(cls, ids: Sequence[str] | None, config: KeysConfig, member: str, folder: Path | None = None) -> RowKeys:
        """Builds keys from a table's column (None if the source has none). No message quotes a key.

        Raises DataError if there are none, some are empty, or several rows share one.
        """
        if not ids:
            raise DataError(
                f"{member}: its data have no keys, which federation.align needs",
                hint="name the column that identifies a row: `key` of its source; or federation.align: none",
            )
        values = _Compared(ids, config)
        empty, twice, digest = _examined(values, folder)
        if empty:
            raise DataError(f"{member}: {empty} of {len(values)} rows have no key", hint="give them one, or drop them")
        if twice:
            how = f"trim: {config.trim}, case: {config.case}, unicode: {config.unicode}"
            raise DataError(
                f"{member}: {twice} of {len(values)} rows repeat the key of another row (compared with {how})",
                hint="keep one row a key; federation.keys says what counts as the same",
            )
        found = cls(values, folder)
        found.__dict__["digest"] = digest  # fills the cached property
        return found

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that change with any key or the order. Keys can be guessed from it: keep it on the own disk."""
        return _digest(len(self), self.values)

    @cached_property
    def order(self) -> tuple[int, ...]:
        return tuple(sorted(range(len(self.values)), key=self.values.__getitem__))

    @cached_property
    def as_one(self) -> RowKeys:
        """One key that stands for the whole set, independent of the order of rows."""
        return RowKeys((_digest(len(self), map(self.values.__getitem__, self.order)),), self.folder)

    def __len__(self) -> int:
        return len(self.values)


def digest_in_order(ids: Sequence[str], config: KeysConfig) -> bytes:
    """32 bytes that change with any key or the order of rows. Keys can be guessed from it: use under a secret alone."""
    return _digest(len(ids), _Compared(ids, config))


def _examined(values: _Compared, folder: Path | None) -> tuple[int, int, bytes]:
    """Numbers of empty and of repeated keys, and the digest of all, in one pass.

    The disk holds hashes under a secret that exists in memory alone, so keys cannot be guessed from it.
    """
    secret, sorter, empty = os.urandom(_HASH), Sorter(len(values), _HASH, _HASH, folder), 0
    digest = hashlib.sha256(len(values).to_bytes(8))
    for some in values.blocks():
        empty += sum(not value for value in some)
        hashes = b"".join([hashlib.blake2b(value, digest_size=_HASH, key=secret).digest() for value in some])
        sorter.add(np.frombuffer(hashes, dtype=np.uint8).reshape(-1, _HASH))
        digest.update(b"".join([len(value).to_bytes(8) + value for value in some]))
    twice = sum(again(words(hashes, _HASH)) for hashes in sorter.sorted())
    return empty, twice, digest.digest()


def _digest(count: int, values: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256(count.to_bytes(8))
    for value in values:
        digest.update(len(value).to_bytes(8))
        digest.update(value)
    return digest.digest()
