"""Callers without a token or with one, and holders of a revoked certificate, send all they may: little is kept of each.

Bounds: no cell.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.strangers import Greedy
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.run.descriptors import connections
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection
from colonnade.common.wire.frame import METHOD
from colonnade.server.member.listen import Listener, ServerTls
from colonnade.server.prediction.serving import grpc_service
from colonnade.server.prediction.serving.grpc_service import Remote
from colonnade.server.prediction.serving.tokens import Tokens
from tests.server.serving.test_batching import Stage

pytestmark = pytest.mark.real_time

CALLS = 400
KEPT = 64 * 4096
"""Bytes of one connection of `serve`: its calls at a time, and of each what is taken before the token is known."""


async def test_windows_of_serve_stay_small_whatever_callers_send() -> None:
    """gRPC would enlarge them to 32 MB a call for a caller that sends fast."""

    remote = Remote(Stage().batcher, Tokens({"one": "x" * 40}, 1e6))
    port = int((await remote.start("127.0.0.1:0", None)).rpartition(":")[2])
    greedy = Greedy(grpc_service.METHOD.encode(), 1000)
    calling = asyncio.create_task(greedy.run(port))
    while greedy.begun < CALLS:  # noqa: ASYNC110  # it says nothing else
        await asyncio.sleep(0.01)
    calling.cancel()
    await asyncio.wait({calling})
    await remote.stop()
    assert greedy.streams * greedy.window <= KEPT and greedy.held <= KEPT


async def test_a_caller_with_a_token_has_a_fixed_room_over_all_its_connections() -> None:
    """A body is read once one of its caller's 64 seats is free; until then it is the sender's."""
    size, seats = 300_000, 64

    remote = Remote(Stage().batcher, Tokens({"one": "x" * 40}, 1e6), patience=60)
    port = int((await remote.start("127.0.0.1:0", None)).rpartition(":")[2])
    lines = [Greedy(grpc_service.METHOD.encode(), 1000, size, token="x" * 40) for _ in range(4)]
    calling = [asyncio.create_task(line.run(port)) for line in lines]
    before = -1
    while (sent := sum(line.sent for line in lines)) > before or not sent:  # until nothing more is taken
        before = sent
        await asyncio.sleep(0.5)
    for one in calling:
        one.cancel()
    await asyncio.wait(calling)
    await remote.stop()
    assert seats * size / 2 < sum(line.held for line in lines) < (seats + 8) * size


async def test_all_connections_to_the_federation_share_a_fixed_room_until_they_are_admitted(tmp_path: Path) -> None:
    make_federation(tmp_path, ["former"])
    server, former = load_identity(tmp_path / "server"), tmp_path / "former"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(former / "cert.pem", former / "key.pem")
    tls.set_alpn_protocols(["h2"])
    share = (128 << 20) // connections(4)

    async def refuse_later(_connection: Connection, _pem: bytes | None) -> None:
        await asyncio.sleep(60)

    listener = Listener(Codec(CONTRACT.kinds), 1 << 20, refuse_later)
    port = await listener.start("127.0.0.1:0", ServerTls(server.key_pem, server.chain_pem, server.ca_pem))
    greedy = Greedy(METHOD.encode(), 10, 16_000_000)
    calling = asyncio.create_task(greedy.run(port, tls))
    before = -1
    while not greedy.sent or greedy.sent > before:  # until nothing more is taken
        before = greedy.sent
        await asyncio.sleep(0.3)
    calling.cancel()
    with suppress(asyncio.CancelledError):
        await calling
    await listener.stop()
    assert greedy.streams == 1 and 0 < greedy.held <= share
