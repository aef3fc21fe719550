"""Digest of a list of elements, the same in any order, by which a member commits to it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from colonnade.common.alignment.scratch import Records
from colonnade.common.alignment.sorting import Sorter, again, words
from colonnade.common.errors import InputError


class ListDigest:
    """Hashes the elements of a list in ascending order, so that a shuffle does not change the digest.

    Elements are raised to a secret of their sender, the salt of the commitment: no key can be tested against it.
    """

    def __init__(self, rows: int, width: int, folder: Path | None = None) -> None:
        self._sorter, self._width = Sorter(rows, width, width, folder), width
        self._hash = hashlib.sha256(rows.to_bytes(8))

    def add(self, elements: Records) -> None:
        if len(elements):
            self._sorter.add(elements)

    def digest(self) -> bytes:
        """SHA-256 over the number of elements and all elements.

        Refuses (InputError) an element that repeats: repeats would show how often a member passes each key on.
        """
        for bucket in self._sorter.sorted():
            if twice := again(words(bucket, self._width)):
                raise InputError(f"every element once, {twice} come again")
            self._hash.update(np.ascontiguousarray(bucket).tobytes())
        return self._hash.digest()
