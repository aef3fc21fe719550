"""How much may wait at either end of a connection, and who waits when it is full."""

from __future__ import annotations

import asyncio
from typing import Protocol

AHEAD = 32  # rounds that a message may be of, beyond the newest that both ends have heard of
_KEPT = 4  # of the contract's largest messages wait for a half that does not read, or a line that does not take them
_LEAST = 1 << 18  # bytes that a largest message counts as at least: small ones come in numbers


def bound(largest: int) -> int:
    """Bytes that may wait, where messages have at most so many."""
    return _KEPT * max(largest, _LEAST)


class Capacity(Protocol):
    """A place that can be full."""

    @property
    def full(self) -> bool:
        """Whether who brings more has to wait."""

    async def room(self) -> None:
        """Waits until it is not."""


class Bounded(Capacity):
    """A place whose owner says when something has left it."""

    def __init__(self) -> None:
        self._left = asyncio.Event()

    async def room(self) -> None:
        """Waits until it is not full."""
        while self.full:
            self._left.clear()
            await self._left.wait()


class Unlimited(Capacity):
    """A place that is never full."""

    full = False

    async def room(self) -> None:
        """Returns at once."""
