"""Items from the server that no party side has taken yet: before a session, and between two sessions."""

from __future__ import annotations

import asyncio

from colonnade.common.conversation.capacity import Bounded, bound
from colonnade.common.conversation.membership import Parcel
from colonnade.common.messaging.message import Message, memory

_NOTICE = 512  # bytes counted for an item that is not a message

Heard = Parcel | Exception


class Inbox(Bounded):
    """A bounded queue."""

    def __init__(self, largest: int) -> None:
        super().__init__()
        self._most = bound(largest)
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._bytes = 0

    def __len__(self) -> int:
        return self._heard.qsize()

    @property
    def full(self) -> bool:
        return self._bytes > self._most

    def put(self, heard: Heard) -> None:
        self._bytes += _size(heard)
        self._heard.put_nowait(heard)

    async def get(self) -> Heard:
        return self._taken(await self._heard.get())

    def get_nowait(self) -> Heard:
        return self._taken(self._heard.get_nowait())

    def _taken(self, heard: Heard) -> Heard:
        self._bytes -= _size(heard)
        self._left.set()
        return heard


def _size(heard: Heard) -> int:
    return memory(heard) if isinstance(heard, Message) else _NOTICE
