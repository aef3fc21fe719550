"""Two transports of the same conversation, for tests that both must pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from colonnade.client.dialling.dial import Dialer
from colonnade.common.conversation import inprocess
from colonnade.common.conversation.conversation import SERVER, Cohort, Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.errors import PartyAway
from colonnade.common.messaging.message import Kinds, largest_bytes
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection
from colonnade.common.wire.frame import FRAME_ALLOWANCE
from colonnade.server.member.listen import Listener
from tests.support.patience import PATIENCE


@dataclass
class Wired:
    """A server and its parties, joined. `cut` breaks a party's connection without a farewell."""

    clients: Cohort
    servers: dict[str, Link]
    mailbox: Mailbox
    cut: Callable[[str], Coroutine[Any, Any, None]]


Limits = Mapping[str, int]


class InProcess:
    """One loop on a virtual clock."""

    name = "inprocess"

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        inprocess.run_virtual(main)

    @asynccontextmanager
    async def join(
        self, parties: list[str], theirs: Kinds, ours: Kinds, wide: Limits, limits: Limits
    ) -> AsyncIterator[Wired]:
        mailbox = Mailbox()
        clients, servers = inprocess.connect(parties, ours, limits, mailbox=mailbox)
        for link in servers.values():
            link.kinds, link.limits = theirs, wide

        async def cut(party: str) -> None:
            clients[party].lose(PartyAway(party, "the connection was closed"))
            servers[party].lose(PartyAway(SERVER, "the connection was closed"))

        yield Wired(clients, servers, mailbox, cut)


class Grpc:
    """Real gRPC on loopback, each end in its own wire thread."""

    name = "grpc"

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        asyncio.run(asyncio.wait_for(main, PATIENCE))

    @asynccontextmanager
    async def join(
        self, parties: list[str], theirs: Kinds, ours: Kinds, wide: Limits, limits: Limits
    ) -> AsyncIterator[Wired]:
        mailbox, greeted = Mailbox(), asyncio.Queue[Connection]()
        largest = max(largest_bytes(kind, limits) for kind in ours.values()) + FRAME_ALLOWANCE

        widest = max(largest_bytes(kind, wide) for kind in theirs.values()) + FRAME_ALLOWANCE

        async def greet(connection: Connection, _pem: bytes | None) -> None:
            greeted.put_nowait(connection)

        listener = Listener(Codec(ours), largest, greet)
        port = await listener.start("127.0.0.1:0", None)
        at_server: dict[str, Link] = {}
        servers: dict[str, Link] = {}
        dialled: dict[str, tuple[Dialer, Connection]] = {}
        for party in parties:
            dialer = Dialer(Codec(theirs), widest)
            up = await dialer.dial(lambda: f"127.0.0.1:{port}", lambda _host, _port: None, 10)
            down = await greeted.get()
            down.peer = party
            at_server[party] = Link(party, ours, limits, down.post, mailbox)
            servers[party] = Link(SERVER, theirs, wide, up.post, outlet=up.outlet)
            down.attach(at_server[party].deliver, at_server[party].lose, at_server[party])
            up.attach(servers[party].deliver, servers[party].lose, servers[party])
            dialled[party] = (dialer, up)

        async def cut(party: str) -> None:
            await dialled[party][0].close()

        try:
            yield Wired(Cohort(at_server, mailbox), servers, mailbox, cut)
        finally:  # a server that is not stopped hangs the interpreter
            for dialer, connection in dialled.values():
                await connection.close()
                await dialer.close()
            await listener.stop()


Transport = InProcess | Grpc
both = pytest.mark.parametrize("transport", [InProcess(), Grpc()], ids=lambda transport: transport.name)
