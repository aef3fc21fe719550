"""Queues at either end of a connection: their bounds, back-pressure when these are reached, and the outbox."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar

from colonnade.common.conversation.parcels import Open
from colonnade.common.messaging.message import Message

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


_T = TypeVar("_T")

BEYOND = 4  # times the bound: a peer with more unread data counts as lost


class Outbox(Bounded, Generic[_T]):
    """A bounded queue of messages of at most `largest` bytes.

    A sending party waits while it is full. A server does not wait for one party: if its queue is full, messages of
    rounds before the newest open one are dropped, which the party would skip anyway.
    """

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.bytes = 0
        self._most = bound(largest)
        self._waiting: deque[tuple[_T, int, int | None]] = deque()
        self._newest = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """True if a sender should wait."""
        return self.bytes > self._most

    @property
    def hopeless(self) -> bool:
        """True if so much is unread that the peer counts as lost."""
        return self.bytes > BEYOND * self._most

    def put(self, item: object, form: _T, size: int) -> None:
        """Adds an item in the form in which it is sent."""
        round = item.round if isinstance(item, Message | Open) else None
        if isinstance(item, Open):
            self._newest = item.round
        self._waiting.append((form, size, round))
        self.bytes += size
        if self.full:
            self._drop_passed()

    def first_size(self) -> int:
        """Size of the next item."""
        return self._waiting[0][1]

    def take(self) -> _T:
        """Removes and returns the next item."""
        form, size, _ = self._waiting.popleft()
        self._relieve(size)
        return form

    def clear(self) -> None:
        """Drops all items."""
        self._waiting.clear()
        self._relieve(self.bytes)

    def _drop_passed(self) -> None:
        kept = deque(entry for entry in self._waiting if entry[2] is None or entry[2] >= self._newest)
        dropped = self.bytes - sum(size for _, size, _ in kept)
        self._waiting = kept
        self._relieve(dropped)

    def _relieve(self, size: int) -> None:
        self.bytes -= size
        self._left.set()
