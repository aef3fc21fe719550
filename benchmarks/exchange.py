"""1024 x 60 float32 each way between two processes: the whole stack against a bare gRPC echo.

Both use asyncio gRPC on a bidirectional stream, one event loop a process, and the same certificates and mutual TLS. The
floor echoes bytes on asyncio's own event loop, as in gRPC's documentation. Ours goes through the party side, its
contract, the party's egress and ledger, the codec, frames, the mailbox and back, on uvloop, like the processes of a
federation.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import grpc
import torch
import uvloop

from benchmarks.report import Figure, in_turn, median
from colonnade.client.dialling.dial import ClientTls, Dialer
from colonnade.client.privacy.egress import Egress
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.crypto.pki.names import dns_name
from colonnade.common.errors import PeerError
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.privacy.release import release_clear
from colonnade.common.protocols.split import CONTRACT, Embedding, Gradient
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection
from colonnade.server.member.listen import Listener, ServerTls

LIMITS = {"rows": 1024, "width": 60}
ROWS, WIDTH = 1024, 60
LARGEST = 1 << 20
EXCHANGES, BLOCKS = 100, 7
LOOPS = {"bare": asyncio.new_event_loop, "stack": uvloop.new_event_loop}


def main() -> list[Figure]:
    """Measures blocks of both in turn, and compares the medians."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        keys = Path(scratch) / "keys"
        make_federation(keys, ["party"])
        bare, stack = _measure(keys, Path(scratch))
    return [
        Figure(
            "exchange of 1024 x 60 float32 each way, whole stack", 1e3 * stack, 2.0, "ms", 1e3 * bare, "bare gRPC echo"
        )
    ]


def _measure(keys: Path, scratch: Path) -> tuple[float, float]:
    peers = {how: Peer(how, keys) for how in LOOPS}
    ends = {"bare": Bare(keys, peers["bare"].port), "stack": _Stack(keys, peers["stack"].port, scratch)}
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [peer.end() for peer in peers.values()])
        loops = {how: stack.enter_context(asyncio.Runner(loop_factory=loop)) for how, loop in LOOPS.items()}
        for how, end in ends.items():
            loops[how].run(end.open())
        calls = [partial(_exchange, loops[how], end) for how, end in ends.items()]
        times = in_turn(*calls, repeats=BLOCKS, warm=1)
        for how, end in ends.items():
            loops[how].run(end.close())
    return median(times[0]) / EXCHANGES, median(times[1]) / EXCHANGES


def _exchange(loop: asyncio.Runner, end: Bare | _Stack) -> None:
    loop.run(end.exchange(EXCHANGES))


class Peer:
    """The server's process. `how` is one of `LOOPS`."""

    def __init__(self, how: str, keys: Path) -> None:
        argv = [sys.executable, "-m", "benchmarks.exchange", how, str(keys)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Bare:
    """The floor's end: frames with the same number of bytes, nothing else."""

    def __init__(self, keys: Path, port: int, size: int = ROWS * WIDTH * 4 + 60) -> None:
        self._keys, self._port, self._payload = keys, port, bytes(size)

    async def close(self) -> None:
        await self._channel.close()

    async def open(self) -> None:
        identity, server = load_identity(self._keys / "party"), (self._keys / "server" / "cert.pem").read_bytes()
        credentials = grpc.ssl_channel_credentials(server, identity.key_pem, identity.chain_pem)
        options = [("grpc.ssl_target_name_override", dns_name(SERVER)), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.aio.secure_channel(f"127.0.0.1:{self._port}", credentials, options=options)
        self._call = self._channel.stream_stream("/echo/Echo")()
        await self._call.wait_for_connection()

    async def exchange(self, times: int) -> None:
        for _ in range(times):
            await self._call.write(self._payload)
            await self._call.read()


class _Stack:
    def __init__(self, keys: Path, port: int, scratch: Path) -> None:
        self._keys, self._port, self._round = keys, port, 0
        self._ledger = Ledger(scratch / "ledger.jsonl")

    async def open(self) -> None:
        identity, server = load_identity(self._keys / "party"), (self._keys / "server" / "cert.pem").read_bytes()
        tls = ClientTls(identity.key_pem, identity.chain_pem, server, dns_name(SERVER))
        self._dialer = Dialer(Codec(CONTRACT.kinds), LARGEST)
        connection = await self._dialer.dial(lambda: f"127.0.0.1:{self._port}", lambda _host, _port: tls, 10)
        self._egress = Egress(connection.post, SERVER, release_clear, self._ledger)
        self._link = Link(SERVER, CONTRACT.kinds, LIMITS, self._egress)
        connection.attach(self._link.deliver, self._link.lose)

    async def exchange(self, times: int) -> None:
        h = torch.randn(ROWS, WIDTH)
        for _ in range(times):
            self._round += 1
            await self._link.send(Embedding(self._round, self._egress.release(h)))
            await self._link.recv(Gradient, self._round, rows=ROWS, width=WIDTH)

    async def close(self) -> None:
        await self._dialer.close()


async def _serve_bare(keys: Path) -> None:
    identity = load_identity(keys / "server")

    async def echo(_requests: object, context: grpc.aio.ServicerContext) -> None:
        while (frame := await context.read()) is not grpc.aio.EOF:
            await context.write(frame)

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handler = grpc.stream_stream_rpc_method_handler(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"Echo": handler}),))
    pair = [(identity.key_pem, identity.chain_pem)]
    credentials = grpc.ssl_server_credentials(pair, identity.ca_pem, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    print(port, flush=True)
    await asyncio.sleep(3600)


async def _serve_stack(keys: Path) -> None:
    identity = load_identity(keys / "server")

    async def greet(connection: Connection, _pem: bytes | None) -> None:
        link = Link("party", CONTRACT.kinds, LIMITS, connection.post)
        connection.attach(link.deliver, link.lose)
        round = 0
        while True:
            round += 1
            try:
                embedding = await link.recv(Embedding, round, rows=ROWS, width=WIDTH)
            except PeerError:
                return
            assert embedding is not None
            await link.send(Gradient(round, embedding.h))

    listener = Listener(Codec(CONTRACT.kinds), LARGEST, greet)
    tls = ServerTls(identity.key_pem, identity.chain_pem, identity.ca_pem)
    print(await listener.start("127.0.0.1:0", tls), flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with asyncio.Runner(loop_factory=LOOPS[sys.argv[1]]) as runner:
        runner.run({"bare": _serve_bare, "stack": _serve_stack}[sys.argv[1]](Path(sys.argv[2])))
