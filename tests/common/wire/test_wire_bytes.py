"""Bytes on TCP: counted by a proxy between a party and the server, over mutual TLS."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch

from colonnade.client.dialling.dial import ClientTls, Dialer
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.parcels import Open
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.crypto.pki.names import dns_name
from colonnade.common.messaging.message import largest_bytes
from colonnade.common.protocols.split import CONTRACT, Embedding, Gradient
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection
from colonnade.common.wire.frame import FRAME_ALLOWANCE
from colonnade.server.member.listen import Listener, ServerTls

ROWS, WIDTH, COUNT = 1024, 60, 20
LIMITS = {"rows": ROWS, "width": WIDTH}
PAYLOAD = ROWS * WIDTH * 4
LARGEST = largest_bytes(Embedding, LIMITS) + FRAME_ALLOWANCE


class Proxy:
    """Passes TCP on to a port and counts the bytes of both directions."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.bytes: Counter[str] = Counter()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.close()

    async def _serve(self, here_in: asyncio.StreamReader, here_out: asyncio.StreamWriter) -> None:
        there_in, there_out = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass("up", here_in, there_out), self._pass("down", there_in, here_out))

    async def _pass(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.bytes[way] += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Identity]:
    folder = tmp_path_factory.mktemp("federation") / "certs"
    make_federation(folder, ["ada"])
    return lambda name: load_identity(folder / name)


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 60))


def test_twenty_messages_each_way_cost_at_most_half_a_percent_and_300_bytes(
    identities: Callable[[str], Identity],
) -> None:
    server, ada = identities(SERVER), identities("ada")

    async def body() -> None:
        codec, greeted = Codec(CONTRACT.kinds), asyncio.Queue[Connection]()

        async def greet(connection: Connection, pem: bytes | None) -> None:
            assert pem is not None and pem.split() == ada.chain_pem.split()
            greeted.put_nowait(connection)

        listener = Listener(codec, LARGEST, greet)
        proxy = Proxy(await listener.start("127.0.0.1:0", ServerTls(server.key_pem, server.chain_pem, server.ca_pem)))
        port = await proxy.start()
        tls = ClientTls(ada.key_pem, ada.chain_pem, server.chain_pem, dns_name(SERVER))
        dialer = Dialer(codec, LARGEST)
        up = await dialer.dial(lambda: f"127.0.0.1:{port}", lambda _host, _port: tls, 20)
        down = await greeted.get()
        at_server = Link("ada", CONTRACT.kinds, LIMITS, down.post)
        at_party = Link(SERVER, CONTRACT.kinds, LIMITS, up.post)
        down.attach(at_server.deliver, at_server.lose)
        up.attach(at_party.deliver, at_party.lose)
        down.post(Open(1))
        await anext(at_party.rounds())

        before = proxy.bytes.copy()
        for round in range(1, COUNT + 1):
            await at_party.send(Embedding(round, torch.rand(ROWS, WIDTH)))
            assert await at_server.recv(Embedding, round) is not None
            await at_server.send(Gradient(round, torch.rand(ROWS, WIDTH)))
            assert await at_party.recv(Gradient, round) is not None
        passed = proxy.bytes - before

        for way in ("up", "down"):
            assert COUNT * PAYLOAD < passed[way] <= COUNT * (PAYLOAD * 1.005 + 300)
        # The connections count gRPC's messages: nearly all bytes, and no more.
        assert 0.995 * passed["up"] < down.wire.received <= passed["up"] + before["up"]
        assert 0.995 * passed["down"] < up.wire.received <= passed["down"] + before["down"]

        await up.close()
        await dialer.close()
        await listener.stop()
        proxy.stop()

    run(body)
