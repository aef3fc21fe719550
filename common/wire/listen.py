"""The server's end of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc

from common.ports import cannot_listen, refuse_taken
from common.wire.codec import Codec
from common.wire.connection import Connection, channel_options
from common.wire.frame import METHOD

_KEY = "server.listen"

# Given a new connection and its certificate (PEM, or None without TLS), lets it in or turns it away.
Greet = Callable[[Connection, bytes | None], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class ServerTls:
    """What mutual TLS needs at the server, all PEM."""

    key: bytes
    chain: bytes
    ca: bytes


class Listener(grpc.GenericRpcHandler):
    """A gRPC server for one method, whose streams become connections.

    Args:
        codec: of the federation's protocol.
        largest: bytes of the largest frame that a party may send.
        greet: called for every new stream.
    """

    def __init__(self, codec: Codec, largest: int, greet: Greet) -> None:
        self._codec, self._largest, self._greet = codec, largest, greet
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, tls: ServerTls | None) -> int:
        """Listens on HOST:PORT (port 0 takes a free one) and returns the port.

        Raises:
            EnvironmentFault: the port is in use, or the address is not ours.
        """
        refuse_taken(address, _KEY)
        options = [*channel_options(self._largest), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))
        try:
            port = _bind(self._server, address, tls)
        except RuntimeError as failed:
            raise cannot_listen(address, _KEY, failed) from failed
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Stops listening and ends all streams."""
        if self._server is not None:
            await self._server.stop(grace=1)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """gRPC asks who handles a method."""
        if details.method != METHOD:
            return None
        return grpc.stream_stream_rpc_method_handler(self._handle)

    async def _handle(self, _requests: Any, context: grpc.aio.ServicerContext) -> None:
        connection = Connection(context, self._codec, self._largest)
        pem = next(iter(context.auth_context().get("x509_pem_cert", [None])))
        greeting = asyncio.create_task(self._greet(connection, pem))
        try:
            await connection.done.wait()
        finally:
            greeting.cancel()


def _bind(server: grpc.aio.Server, address: str, tls: ServerTls | None) -> int:
    if tls is None:
        return int(server.add_insecure_port(address))
    pair = [(tls.key, tls.chain)]
    credentials = grpc.ssl_server_credentials(pair, root_certificates=tls.ca, require_client_auth=True)
    return int(server.add_secure_port(address, credentials))
