"""Callers' tokens and rate limits."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.common.crypto.pki import files
from colonnade.common.errors import DataError, disk_faults
from colonnade.common.run.files import open_own

_BYTES = 32  # of a generated token: 43 characters
_SHORTEST = 32  # least characters of a token

_AT_ONCE = 64  # requests of a caller being read or answered; their bodies, at most 1 MB each, are in memory
_IN_LINE = 256  # requests of a caller waiting for one of those seats; they are not read yet

_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")


class Unknown(Exception):
    """The caller shows no token, or an unknown one."""


class TooMany(Exception):
    """The caller has exceeded its rate, and may ask again after `wait` seconds."""

    def __init__(self, wait: float, what: str = "ids") -> None:
        super().__init__(f"too many {what}: ask again in {wait:.1f} s")
        self.wait = wait


@dataclass
class Bucket:
    """Token bucket: `rate` ids a second on average, with bursts of the same number."""

    rate: float
    clock: Callable[[], float] = time.monotonic
    _left: float = field(init=False)
    _seen: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._seen = self.rate, self.clock()

    def take(self, ids: int) -> None:
        """Pays for some ids. A full bucket admits a question larger than itself. Raises TooMany."""
        now = self.clock()
        self._left, self._seen = min(self.rate, self._left + (now - self._seen) * self.rate), now
        needed = min(float(ids), self.rate)
        if self._left < needed:
            raise TooMany((needed - self._left) / self.rate)
        self._left -= ids  # a large question leaves a debt, which later questions wait for


class Tokens:
    """Accepted tokens (only their hashes stay in memory), and each caller's bucket of `rate` ids a second."""

    def __init__(self, tokens: dict[str, str], rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._hashes = {name: _hash(token) for name, token in tokens.items()}
        self._buckets = {name: Bucket(rate, clock) for name in tokens}
        self._seats = {name: asyncio.Semaphore(_AT_ONCE) for name in tokens}
        self._in_line: Counter[str] = Counter()

    @classmethod
    def read(cls, path: Path, rate: float) -> Tokens:
        """Reads callers from a file with lines `NAME TOKEN`; if missing, the file is created with one token.

        Raises DataError if a line is malformed, a name occurs twice, or a token is short enough to be guessed.
        """
        if not path.exists():
            add_caller(path, "default")
        tokens: dict[str, str] = {}
        for number, line in enumerate(_text(path).splitlines(), start=1):
            if not (words := line.partition("#")[0].split()):
                continue
            if len(words) != 2 or words[0] in tokens:
                raise DataError(
                    f"{path}, line {number}: expected a new name and its token",
                    hint="one caller a line: NAME TOKEN",
                )
            if len(words[1]) < _SHORTEST:
                raise DataError(
                    f"{path}, line {number}: the token of {words[0]!r} has {len(words[1])} characters, "
                    f"and {_SHORTEST} are the least",
                    hint=f"remove the line, and make another: colonnade token {words[0]} --tokens {path}",
                )
            tokens[words[0]] = words[1]
        if not tokens:
            raise DataError(f"{path} has no token", hint="one caller a line: NAME TOKEN; or remove the file")
        return cls(tokens, rate)

    def admit(self, authorization: str, ids: int) -> str:
        """The name of the caller with this header, `Bearer TOKEN`; charges it for ids. Raises Unknown or TooMany."""
        name = self._caller(authorization)
        self._buckets[name].take(ids)
        return name

    @asynccontextmanager
    async def seat(self, authorization: str) -> AsyncIterator[None]:
        """Context in which a request is read and answered. A caller has few seats, and waits for a free one.

        Raises Unknown, or TooMany if too many of the caller's requests are waiting.
        """
        name = self._caller(authorization)
        if self._in_line[name] >= _IN_LINE:
            raise TooMany(1.0, "requests at once")
        self._in_line[name] += 1
        try:
            await self._seats[name].acquire()
        finally:
            self._in_line[name] -= 1
        try:
            yield
        finally:
            self._seats[name].release()

    def _caller(self, authorization: str) -> str:
        scheme, _, token = authorization.partition(" ")
        shown = _hash(token.strip())
        # Compares all tokens, each in constant time, so that response times reveal nothing.
        found = [name for name, known in self._hashes.items() if hmac.compare_digest(known, shown)]
        if scheme.lower() != "bearer" or not found:
            raise Unknown("no valid token: send the header Authorization: Bearer TOKEN")
        return found[0]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _text(path: Path) -> str:
    try:
        return files.read(path, private=True).decode()
    except UnicodeDecodeError as wrong:
        raise DataError(f"{path} is no text: {wrong}", hint="one caller a line: NAME TOKEN, in UTF-8") from None


def add_caller(path: Path, name: str) -> str:
    """Creates a token for a caller, appends it to the file (created if missing) and returns it.

    Raises DataError if the name is invalid or already in the file, or the file is malformed.
    """
    if not _NAME.fullmatch(name):
        raise DataError(f"{name[:80]!r} is no name for a caller", hint="use 1 to 63 letters, digits, ., - and _")
    before = _text(path) if path.exists() else ""
    if any(line.split()[:1] == [name] for line in before.splitlines()):
        raise DataError(f"{path} has a token of {name!r} already", hint="remove its line first, or take another name")
    token = secrets.token_urlsafe(_BYTES)
    with disk_faults(f"{path} cannot be written", "name another file: --tokens FILE"):
        file = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(f"{'' if before.endswith(chr(10)) or not before else chr(10)}{name} {token}\n")
    return token
