"""The server's end of the connections, and the TLS handshakes that it refuses.

gRPC reports refused handshakes only in its log. A client with a foreign certificate, no certificate or no TLS never
reaches a stream, so the hub does not see it. gRPC's core writes one line to standard error for each, if GRPC_VERBOSITY
enables its log (INFO has those lines). While the server listens, standard error passes through a pipe and those lines
become events. Other lines of gRPC's core are rate-limited; all other lines pass unchanged.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from colonnade.common.conversation.stream import Stream
from colonnade.common.observability.ports import cannot_listen, refuse_taken
from colonnade.common.run.descriptors import connections
from colonnade.common.run.rate_limit import Digest
from colonnade.common.text import escaped
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import AHEAD_OF_READER, Connection, channel_options
from colonnade.common.wire.frame import METHOD
from colonnade.common.wire.grpc_bounds import pending

_KEY = "server.listen"

# Limits for strangers: handshakes and connections without a stream time out; a connection has one stream; and refusals
# before our own code runs are cheap.
STRANGERS = [
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.max_concurrent_streams", 1),
    *pending(64, 256),
]

# Bytes that all connections together may have sent before any of them is admitted, while the transport keeps them.
_UNREAD = 128 << 20
_EACH = 4  # connections that a party may need at a time: a dead one, the next, and certificate probes

# Given a new connection and its certificate (PEM, or None without TLS), accepts or refuses it.
Greet = Callable[[Stream, bytes | None], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class ServerTls:
    """Mutual TLS material of the server, all PEM."""

    key: bytes
    chain: bytes
    ca: bytes


async def begin(server: grpc.aio.Server) -> None:
    """Starts a gRPC server; even if cancelled, it waits for the start, so that the server can be stopped.

    A cancelled `Server.start` leaves a cancelled future in gRPC, and its `stop` then raises InvalidStateError.
    """
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
    finally:
        await starting


class Door(Protocol):
    """The server's end of a transport, made with `Listener`'s arguments."""

    async def start(self, address: str, tls: ServerTls | None) -> int:
        """Listens on HOST:PORT and returns the port."""

    async def stop(self) -> None:
        """Stops listening and ends all streams."""


class Listener(grpc.GenericRpcHandler):
    """A gRPC server for one method, whose streams become connections.

    `largest` is the maximum bytes of a frame that a party may send; `greet` is called for every new stream, before
    anything is read.
    """

    def __init__(self, codec: Codec, largest: int, greet: Greet, parties: int = 1) -> None:
        self._codec, self._largest, self._greet, self._parties = codec, largest, greet, parties
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, tls: ServerTls | None) -> int:
        """Listens on HOST:PORT (port 0 takes a free one) and returns the port.

        Raises EnvironmentFault if the port is in use, the address is not ours, or the limit of open files is too low.
        """
        refuse_taken(address, _KEY)
        most = connections(_EACH * self._parties)
        options = [
            *channel_options(self._largest, min(_UNREAD // most, AHEAD_OF_READER)),
            *STRANGERS,
            ("grpc.max_allowed_incoming_connections", most),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))
        try:
            port = _bind(self._server, address, tls)
        except RuntimeError as failed:
            raise cannot_listen(address, _KEY, failed) from failed
        await begin(self._server)
        return port

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=1)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        if details.method != METHOD:
            return None
        return grpc.stream_stream_rpc_method_handler(self._handle)

    async def _handle(self, _requests: Any, context: grpc.aio.ServicerContext) -> None:
        connection = Connection(context, self._codec, self._largest)
        connection.address = escaped(str(context.peer()), 80)
        pem = next(iter(context.auth_context().get("x509_pem_cert", [None])))
        greeting = asyncio.create_task(self._greet(connection, pem))
        try:
            await connection.done.wait()
        finally:
            greeting.cancel()
            connection.hang_up()


def _bind(server: grpc.aio.Server, address: str, tls: ServerTls | None) -> int:
    if tls is None:
        return int(server.add_insecure_port(address))
    pair = [(tls.key, tls.chain)]
    credentials = grpc.ssl_server_credentials(pair, root_certificates=tls.ca, require_client_auth=True)
    return int(server.add_secure_port(address, credentials))


_STDERR = 2
_LINE = re.compile(rb"Handshake failed with error .*OPENSSL_internal:(\w+)(?:: (.*))?")
_GRPC = re.compile(rb"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] ")  # any other line of gRPC's core
_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not accepted",
    "HTTP_REQUEST": "it does not speak TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
}


@contextmanager
def watch_handshakes(broadcast: Callable[[str], None]) -> Iterator[None]:
    """Calls `broadcast`, in the running event loop, with the reason of every handshake that fails inside the context.

    Does nothing if GRPC_VERBOSITY is NONE.
    """
    if os.environ.get("GRPC_VERBOSITY") == "NONE":
        yield
        return
    loop = asyncio.get_running_loop()
    kept = os.dup(_STDERR)
    source, sink = os.pipe()
    os.dup2(sink, _STDERR)
    os.close(sink)

    def tell_loop(reason: str) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            loop.call_soon_threadsafe(broadcast, reason)

    reader = threading.Thread(target=sift, args=(source, kept, tell_loop), name="handshakes", daemon=True)
    reader.start()
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)  # closes the pipe, so that its reader reaches the end
        reader.join(timeout=1)


def reason_of(line: bytes) -> str | None:
    """Why a handshake failed, or None if the line reports no failed handshake."""
    found = _LINE.search(line)
    if found is None:
        return None
    code, detail = found[1].decode(), (found[2] or b"").decode(errors="replace").strip()
    if code not in _REASONS:
        return f"the TLS handshake failed: {code.lower().replace('_', ' ')}"
    return _REASONS[code] + (f": {escaped(detail)}" if code == "CERTIFICATE_VERIFY_FAILED" and detail else "")


def sift(source: int, kept: int, broadcast: Callable[[str], None]) -> None:
    with os.fdopen(source, "rb", buffering=0) as lines, os.fdopen(kept, "wb", buffering=0) as through:
        bounded = Digest(lambda said: through.write(f"{said['reason']}\n".encode()))
        rest = b""
        while chunk := lines.read(1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                if (reason := reason_of(line)) is not None:
                    broadcast(reason)
                elif _GRPC.match(line):
                    bounded({"kind": "refused", "time": 0.0, "reason": line.decode(errors="replace")})
                else:
                    through.write(line + b"\n")
        through.write(rest)
        bounded.settle()
