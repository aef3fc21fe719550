"""The server's end of the connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from colonnade.common.conversation.stream import Stream
from colonnade.common.escaped import escaped
from colonnade.common.observability.ports import cannot_listen, refuse_taken
from colonnade.common.run.descriptors import connections
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
    """The end of a transport that parties reach; it is made with `Listener`'s arguments."""

    async def start(self, address: str, tls: ServerTls | None) -> int:
        """Lets parties in at HOST:PORT; returns the port."""

    async def stop(self) -> None:
        """Lets nobody in any more, and ends all streams."""


class Listener(grpc.GenericRpcHandler):
    """A gRPC server for one method, whose streams become connections.

    Args:
        largest: maximum bytes of a frame that a party may send.
        greet: called for every new stream, before anything is read.
    """

    def __init__(self, codec: Codec, largest: int, greet: Greet, parties: int = 1) -> None:
        self._codec, self._largest, self._greet, self._parties = codec, largest, greet, parties
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, tls: ServerTls | None) -> int:
        """Listens on HOST:PORT (port 0 takes a free one) and returns the port.

        Raises:
            EnvironmentFault: the port is in use, the address is not ours, or the limit of open files is too low.
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
        """gRPC hook: the handler of a method."""
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
