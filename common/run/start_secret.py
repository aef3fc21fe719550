"""The secret that a member's own draws follow from, in its folder beside the checkpoints; it is drawn once in a run.

It never leaves the folder. With the secret and the first messages, anyone can solve for the member's columns; without
it a run cannot be repeated from its beginning, so a lost folder is a lost party.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from colonnade.common.errors import CheckpointError
from colonnade.common.run.files import write_kept

SECRET, PUBLIC = "secret", "public"

_BYTES = 32
_CHECKSUM = 8  # bytes after it: draws from a damaged secret would look valid
_ANEW = "put the file back from the same folder's copy; without it, begin a new run in another folder"


class StartSecret:
    """A member's secret, or none if its start is public.

    Runs begun before secrets existed have no such record, and keep their start from the agreed seed.

    Args:
        path: the secret's file; None keeps it in memory.
        recorded: the start by the run's record in the folder: SECRET, possibly with its name, PUBLIC, or "" from older
            versions; None if no run has begun there.
        public: True to begin a run in public.
        needed: False for predictions, which do not use a model's start: a lost secret is replaced.

    Attributes:
        value: 32 bytes; None where the start is public.

    Raises CheckpointError if the run has begun with a secret, and its file is missing, damaged, or of another run.
    """

    def __init__(
        self, path: Path | None, recorded: str | None = None, *, public: bool = False, needed: bool = True
    ) -> None:
        self._path = path
        self.before = False
        """True if the run was begun by a version without secrets."""
        self.value: bytes | None = None
        self._kept, self._recorded = not needed, "" if needed else recorded
        if recorded == PUBLIC or (recorded is None and public):
            return
        try:
            self.value = self._read()
        except CheckpointError:
            if needed:
                raise
        if self.value is None and recorded == "":
            self.before = True
            return
        if self.value is None and recorded is not None and needed:
            raise CheckpointError(f"{self._path} is missing, which the run began with", hint=_ANEW)
        if needed and self.value is not None and recorded not in (None, "", SECRET, self.record):
            raise CheckpointError(f"{self._path} is another one than the run began with", hint=_ANEW)
        self._kept = self._kept or self.value is not None
        self.value = self.value or os.urandom(_BYTES)

    @property
    def record(self) -> str:
        """The entry for the run's record; unchanged for predictions."""
        if self._recorded:
            return self._recorded
        return PUBLIC if self.value is None else f"{SECRET} {_name(self.value)}"

    def keep(self) -> None:
        """Writes the secret, unless it is there; it is on the disk when this returns."""
        if self.value is None or self._kept or self._path is None:
            return
        write_kept(self._path, self.value + _checksum(self.value), 0o600, in_new=True)
        self._kept = True

    def _read(self) -> bytes | None:
        if self._path is None:
            return None
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as failed:
            raise CheckpointError(f"{self._path} cannot be read: {failed.strerror}", hint=_ANEW) from None
        with os.fdopen(file, "rb") as opened:
            content = opened.read(_BYTES + _CHECKSUM + 1) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        value = content[:_BYTES]
        if content[_BYTES:] != _checksum(value):
            raise CheckpointError(f"{self._path} is torn or was altered", hint=_ANEW)
        return value


def _name(value: bytes) -> str:
    """Identifies the secret, hex: 128 bits of its hash, which do not reveal it."""
    return hashlib.sha256(b"colonnade: which start\n" + value).hexdigest()[:32]


def _checksum(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()[:_CHECKSUM]
