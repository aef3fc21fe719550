"""Bounds on the data queued at either end of a connection, and back-pressure when they are reached."""

from __future__ import annotations

import asyncio
from typing import Protocol

AHEAD = 32  # rounds by which a message may be ahead of the newest round known to both ends
KEPT = 4  # number of the contract's largest messages that may be queued for a slow reader or connection
LEAST = 1 << 18  # minimum bytes that a largest message counts as: small ones are numerous


def bound(largest: int) -> int:
    """Bytes that may be queued, for messages of at most `largest` bytes."""
    return KEPT * max(largest, LEAST)


class Capacity(Protocol):
    """A queue that can be full."""

    @property
    def full(self) -> bool:
        """True if a producer has to wait."""

    async def room(self) -> None:
        """Waits until it is not full."""


class Bounded(Capacity):
    """A queue whose owner signals when an item has left it."""

    def __init__(self) -> None:
        self._left = asyncio.Event()

    async def room(self) -> None:
        """Waits until it is not full."""
        while self.full:
            self._left.clear()
            await self._left.wait()


class Unlimited(Capacity):
    """A queue that is never full."""

    full = False

    async def room(self) -> None:
        """Returns at once."""
