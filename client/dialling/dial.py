"""The party's end of the connection: it dials out and opens no port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import grpc

from colonnade.client.dialling.proxy import proxy_for
from colonnade.common.conversation.stream import Stream
from colonnade.common.errors import EnvironmentFault
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection, channel_options
from colonnade.common.wire.frame import METHOD

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


@dataclass(frozen=True)
class ClientTls:
    """Mutual TLS material of a party, all PEM.

    Args:
        root: the only accepted certificate: the server's own, after comparison with its pin.
        server_name: the DNS name in it, independent of the dialled address.
    """

    key: bytes
    chain: bytes
    root: bytes
    server_name: str


# Probes the server at (host, port) and returns the TLS settings; None for plain text. Called in a thread before every
# attempt; an EnvironmentFault means that the server is not up yet.
Prepare = Callable[[str, int], ClientTls | None]


class Dialling(Protocol):
    """The party's end of a transport; it is made with `Dialer`'s arguments."""

    async def dial(self, find_address: Callable[[], str], prepare: Prepare, patience: float) -> Stream:
        """A connection to the server, as `Dialer.dial`."""

    async def close(self) -> None:
        """Ends what the connection was made with."""


class Dialer:
    """Dials the server until it is up; `largest` is the maximum bytes of a frame that the server may send."""

    def __init__(self, codec: Codec, largest: int) -> None:
        self._codec, self._largest = codec, largest
        self._channel: grpc.aio.Channel | None = None

    async def dial(self, find_address: Callable[[], str], prepare: Prepare, patience: float) -> Connection:
        """A connection to the server, tried again with growing pauses for `patience` seconds.

        Args:
            find_address: returns HOST:PORT, or "" while it is unknown.
            prepare: returns the TLS settings for the server.

        Raises:
            EnvironmentFault: the server was not reachable in time; the message has the last reason.
            RefusedError: the server is up, and `prepare` does not trust it or it does not trust us.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience
        pause, address = _FIRST_PAUSE, ""
        reason = EnvironmentFault("its address is not known yet")
        while True:
            address = find_address()
            if address:
                try:
                    return await self._try(address, prepare, deadline - clock())
                except EnvironmentFault as failed:
                    reason = failed
            if clock() + pause > deadline:
                raise EnvironmentFault(
                    f"the server at {address or 'an unknown address'} did not come within {patience:.3g} s: {reason}",
                    hint=reason.hint or "start the server, or check the party's `connect` address",
                )
            await asyncio.sleep(pause)
            pause = min(pause * 1.6, _LONGEST_PAUSE)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def _try(self, address: str, prepare: Prepare, patience: float) -> Connection:
        host, _, port = address.rpartition(":")
        tls = await asyncio.to_thread(prepare, host.strip("[]"), int(port))
        channel = _channel(address, tls, self._largest)
        call = channel.stream_stream(METHOD)()
        try:
            await asyncio.wait_for(call.wait_for_connection(), max(patience, 0.01))
        except (grpc.RpcError, asyncio.InvalidStateError, TimeoutError) as failed:
            details = failed.details() if isinstance(failed, grpc.aio.AioRpcError) else str(failed)
            await channel.close()
            raise EnvironmentFault(details or "no answer") from failed
        self._channel = channel
        connection = Connection(call, self._codec, self._largest)
        connection.peer = "server"
        # While its mail is full it does not read, and would not notice that the stream is over. (At the server gRPC
        # cancels the stream's handler.)
        call.add_done_callback(lambda _call: connection.hang_up())
        return connection


def _channel(address: str, tls: ClientTls | None, largest: int) -> grpc.aio.Channel:
    # A separate connection per stream, as the server requires, not one left by another channel.
    options = [*channel_options(largest), *_way(address), ("grpc.use_local_subchannel_pool", 1)]
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    credentials = grpc.ssl_channel_credentials(tls.root, tls.key, tls.chain)
    options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.aio.secure_channel(address, credentials, options=options)


def _way(address: str) -> list[tuple[str, object]]:
    """The route by which the server's certificate was fetched: gRPC would read the environment again."""
    proxy = proxy_for(address.rpartition(":")[0].strip("[]"))
    return [("grpc.enable_http_proxy", 0)] if proxy is None else [("grpc.http_proxy", proxy.url)]
