"""A party that is here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from common.errors import RefusedError
from common.membership import Hello, Parcel
from common.wire.connection import Connection

_HELLO_PATIENCE = 10.0  # seconds that a new connection has to say who it is
_HELD = 2  # checkpoints that a party keeps


@dataclass
class Member:
    """Its connection, and what it said of itself.

    `ready` until it is told to rewind, and again from its next Hello on.
    """

    connection: Connection
    pem: bytes | None
    hello: Hello
    ready: bool = True
    parted: asyncio.Event = field(default_factory=asyncio.Event)

    def note_saved(self, round: int) -> None:
        """It has saved a round: its Hello, heard again, would say so."""
        held = (round, *(r for r in self.hello.held if r != round))
        self.hello = replace(self.hello, held=held[:_HELD])


async def first_hello(connection: Connection) -> Hello:
    """What a new connection says first.

    Raises:
        RefusedError: it says something else, or nothing in time.
        PeerError: it is lost.
    """
    arrived: asyncio.Queue[Parcel | Exception] = asyncio.Queue()
    connection.attach(arrived.put_nowait, arrived.put_nowait)
    try:
        first = await asyncio.wait_for(arrived.get(), _HELLO_PATIENCE)
    except TimeoutError:
        raise RefusedError(f"no Hello came within {_HELLO_PATIENCE:g} s") from None
    if isinstance(first, Exception):
        raise first
    if not isinstance(first, Hello):
        raise RefusedError(f"{type(first).__name__} came before Hello")
    return first
