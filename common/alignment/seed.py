"""The seed of an alignment's secret and shuffles, kept until the alignment is settled, so that it can be repeated."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from colonnade.common.alignment.psi_member import Draw
from colonnade.common.run.durable import write_kept

NAME = "alignment.seed"

_BYTES = 32
_NONCE = bytes(16)  # every key is used for one stream


class Seed:
    """Randomness for an alignment, repeatable after a restart; other sizes, keys or another run give another stream.

    Args:
        path: its file, readable by its owner alone; None keeps it in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._held = path, b""

    def draw(self, about: bytes) -> Draw:
        """Returns a source of random bytes, the same for the same `about`, until the seed is forgotten."""
        key = hashlib.blake2b(about, key=self._get(), digest_size=_BYTES).digest()
        stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
        return lambda count: stream.update(bytes(count))

    def forget(self) -> None:
        """Removes the seed once the alignment is settled: the next alignment draws another."""
        self._held = b""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _get(self) -> bytes:
        self._held = self._held or self._read()
        if len(self._held) != _BYTES:
            drawn = os.urandom(_BYTES)
            if self._path is not None:
                write_kept(self._path, drawn, 0o600, in_new=True)
            self._held = drawn
        return self._held

    def _read(self) -> bytes:
        return self._path.read_bytes() if self._path is not None and self._path.is_file() else b""
