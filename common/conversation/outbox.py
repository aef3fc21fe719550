"""What waits to leave for a peer, within bounds: a peer that does not read costs no more than a few messages."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from colonnade.common.conversation.capacity import Bounded, bound
from colonnade.common.conversation.control import Open
from colonnade.common.messaging.message import Message

_T = TypeVar("_T")

_BEYOND = 4  # times what may wait: a peer that has not read so much is given up


class Outbox(Bounded, Generic[_T]):
    """A queue that says when it is full.

    A party that sends waits while it is. A server does not wait for one party: where its queue is full, what is of
    rounds before the newest open one is dropped, which the party would pass over anyway.

    Args:
        largest: bytes of the largest message.
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
        """Whether a sender should wait."""
        return self.bytes > self._most

    @property
    def hopeless(self) -> bool:
        """Whether the peer has not read for so long that it is as good as gone."""
        return self.bytes > _BEYOND * self._most

    def put(self, item: object, form: _T, size: int) -> None:
        """Adds an item in the form in which it leaves."""
        round = item.round if isinstance(item, Message | Open) else None
        if isinstance(item, Open):
            self._newest = item.round
        self._waiting.append((form, size, round))
        self.bytes += size
        if self.full:
            self._drop_passed()

    def first_size(self) -> int:
        """Of the item that leaves next."""
        return self._waiting[0][1]

    def take(self) -> _T:
        """The item that leaves next."""
        form, size, _ = self._waiting.popleft()
        self._relieve(size)
        return form

    def clear(self) -> None:
        """Nothing leaves any more."""
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
