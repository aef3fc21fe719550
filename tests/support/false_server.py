"""A server that a test scripts parcel by parcel, for real parties."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from colonnade.common.conversation.parcels import Begin, Close, Farewell, Hello, Open, Save, Saved, Welcome
from colonnade.common.protocols.split import Embedding, Gradient
from tests.support.in_memory import ROUNDS, ROWS, WIDTH, Members, agreed, members
from tests.support.pipe import PipeEnd, Puppet

RUN, VICTIM = "run1", "party1"


def gradient(round: int, value: float = 0.0, rows: int = ROWS) -> Gradient:
    return Gradient(round, torch.full((rows, WIDTH), value))


class FalseServer:
    """A scripted server.

    Args:
        there: the parties, which a test starts.

    Attributes:
        number: of the newest session.
    """

    def __init__(self, there: Members) -> None:
        self.there, self.number = there, 0

    @property
    def events(self) -> list[str]:
        """Kinds of the parties' events."""
        return [event["kind"] for event in self.there.events]

    async def line(self) -> ServerPuppet:
        """The next connection of a party."""
        return ServerPuppet(self, await self.there.ends.get())

    async def joined(self, name: str = VICTIM) -> tuple[asyncio.Task[None], ServerPuppet]:
        """A party that has joined."""
        party = self.there.start(name)
        line = await self.line()
        await line.welcome()
        return party, line

    async def begun(self) -> tuple[asyncio.Task[None], ServerPuppet]:
        """A party that has joined, and its first session."""
        party, line = await self.joined()
        line.begin()
        return party, line

    async def error(self, party: asyncio.Task[None]) -> BaseException | None:
        """The error that a party ends with, None at the end of the run. Fails if it does not end."""
        return await self.there.error(party)

    def files(self, name: str = VICTIM) -> dict[str, bytes]:
        """Everything in the folder of a party but its own record of events."""
        return self.there.files(name)


class ServerPuppet(Puppet):
    """The server's end of one connection of a party, with what an honest server does."""

    def __init__(self, server: FalseServer, end: PipeEnd) -> None:
        super().__init__(end, server.there.codec)
        self._server = server

    async def welcome(self) -> Hello:
        """Admits the party."""
        hello = await self.hear(Hello)
        self.send(Welcome())
        return hello

    def begin(self, round: int = 0, **changed: Any) -> Begin:
        """Begins a session, with the next number."""
        self._server.number += 1
        names = self._server.there.config.federation.names
        begin = Begin(**{"session": self._server.number, "parties": names, "run": RUN, "round": round, **changed})
        self.send(begin)
        return begin

    async def round(self, number: int, value: float = 0.0) -> Embedding:
        """Opens a round and answers the party."""
        self.send(Open(number))
        sent = await self.hear(Embedding)
        assert sent.round == number
        self.send(gradient(number, value))
        return sent

    async def checkpoint(self, number: int, keep: int = 0) -> None:
        """Asks for a checkpoint, and waits until it is on the disk."""
        self.send(Save(number, keep))
        assert await self.hear(Saved) == Saved(number)

    async def finish(self, after: int = 0, keep: int = 0) -> None:
        """The rounds that are left, and the end."""
        for number in range(after + 1, ROUNDS + 1):
            await self.round(number)
        await self.checkpoint(ROUNDS, keep)
        self.send(Close())
        await self.hear(Farewell)
        self.send(Farewell())


@contextmanager
def scripted(folder: Path, *sets: str) -> Iterator[FalseServer]:
    """A scripted server, and parties that have not started."""
    with members(folder, agreed(*sets)) as there:
        yield FalseServer(there)
