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

    Elements are raised to a secret of their sender, so that no key can be tested against their digest: the secret is
    the salt of the commitment.

    Args:
        rows: number of elements.
        width: bytes of an element.
        folder: as for `Scratch`.
    """

    def __init__(self, rows: int, width: int, folder: Path | None = None) -> None:
        self._sorter, self._width = Sorter(rows, width, width, folder), width
        self._hash = hashlib.sha256(rows.to_bytes(8))

    def add(self, elements: Records) -> None:
        """Adds elements, uint8 (n, width). Raises InputError as `Sorter.add`."""
        if len(elements):
            self._sorter.add(elements)

    def digest(self) -> bytes:
        """SHA-256 over their number and all of them.

        Raises:
            InputError: an element comes twice: a list with repeats tells how often a member passes each key on.
        """
        for bucket in self._sorter.sorted():
            if twice := again(words(bucket, self._width)):
                raise InputError(f"every element once, {twice} come again")
            self._hash.update(np.ascontiguousarray(bucket).tobytes())
        return self._hash.digest()
