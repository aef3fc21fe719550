"""The party's end of the connection: it dials out and opens no port.

Before the real connection is made, it fetches the server's certificate, since gRPC does not report the accepted one to
a Python client, so that fingerprints could not be compared afterwards. It compares the certificate, and gives gRPC this
one as its only root: gRPC then accepts exactly it, and nothing can change in between. Faults of either end's
certificate are also reported in words; gRPC reports "unavailable".
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import grpc

from colonnade.client.dialling.proxy import connect, proxy_for
from colonnade.common.conversation.stream import Stream
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.errors import EnvironmentFault, IdentityError, RefusedError
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection, channel_options
from colonnade.common.wire.frame import METHOD

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


@dataclass(frozen=True)
class ClientTls:
    """Mutual TLS material of a party, all PEM. `root` is the only accepted certificate: the server's own, after
    comparison with its pin. `server_name` is the DNS name in it, independent of the dialled address.
    """

    key: bytes
    chain: bytes
    root: bytes
    server_name: str


# Probes the server at (host, port) and returns the TLS settings; None for plain text. Called in a thread before every
# attempt; an EnvironmentFault means that the server is not up yet.
Prepare = Callable[[str, int], ClientTls | None]


class Dialling(Protocol):
    """The party's end of a transport, made with `Dialer`'s arguments."""

    async def dial(self, find_address: Callable[[], str], prepare: Prepare, patience: float) -> Stream:
        """A connection to the server, as `Dialer.dial`."""

    async def close(self) -> None:
        """Closes the transport."""


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
    """gRPC options for the route by which the certificate was fetched; gRPC would read the environment again."""
    proxy = proxy_for(address.rpartition(":")[0].strip("[]"))
    return [("grpc.enable_http_proxy", 0)] if proxy is None else [("grpc.http_proxy", proxy.url)]


def fetch_certificate(host: str, port: int, identity: Identity, *, timeout: float = 5.0) -> bytes:
    """The certificate (PEM) of the server at `host`, checked: a valid server certificate of our authority.

    The caller must still compare its name and fingerprint: see `peers.verify_peer`. Blocks for at most about three
    times `timeout` seconds.

    Raises:
        RefusedError: there is no TLS server, another authority signed its certificate, or it does not accept ours.
        EnvironmentFault: no response from that address; the caller may retry.
        IdentityError: our own key and certificate files were replaced while this process ran.
    """
    where = f"{host}:{port}"
    context = _context(identity)
    try:
        plain = connect(host, port, timeout)
    except OSError as error:
        raise _no_answer(where, error) from error
    try:
        with plain, context.wrap_socket(plain, server_hostname=host) as secured:
            shown = cast(bytes, secured.getpeercert(binary_form=True))  # never None: one is required
            _await_acceptance(secured, where)
    except ssl.SSLCertVerificationError as error:
        raise RefusedError(
            f"the certificate of the server at {where} is not accepted: {error.verify_message}",
            hint="compare its authority with our ca.pem, by: colonnade certs show FILE",
        ) from error
    except ssl.SSLEOFError as error:  # e.g. a proxy whose server has not started yet
        raise _no_answer(where, error) from error
    except ssl.SSLError as error:
        raise _refused(where, _in_words(error)) from error
    except OSError as error:
        raise _no_answer(where, error) from error
    return ssl.DER_cert_to_PEM_cert(shown).encode()


def _await_acceptance(secured: ssl.SSLSocket, where: str) -> None:
    # Under TLS 1.3 a server checks our certificate only after our part of the handshake is done.
    # It then sends its settings or an alert, or closes the connection.
    try:
        if secured.recv(1):
            return
        why = "it closed the connection on seeing it"
    except (ssl.SSLError, ConnectionError) as error:
        why = _in_words(error)
    raise RefusedError(
        f"the server at {where} does not accept our certificate: {why}",
        hint="see whether it has expired, and whether the server's authority is ours: colonnade certs show FILE",
    )


def _context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a pinned certificate is valid at any address
    context.load_verify_locations(cadata=identity.ca_pem.decode())
    try:
        context.load_cert_chain(identity.files.certificate, identity.files.key)
    except OSError as error:
        raise IdentityError(
            f"{identity.files.certificate} and its key changed since they were read: {error}",
            hint="start again, once both files are in place",
        ) from error
    context.set_alpn_protocols(["h2"])
    return context


def _no_answer(where: str, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"no answer from {where}: {_in_words(error)}",
        hint="check that the server is up, its address and port, and the firewall between",
    )


def _refused(where: str, why: str) -> RefusedError:
    return RefusedError(
        f"no secure connection with {where}: {why}",
        hint="check that a Colonnade server listens there, without --insecure, and that the same "
        "authority signed its certificate and ours: colonnade certs show FILE",
    )


def _in_words(error: OSError) -> str:
    # OpenSSL's reasons are names in capitals; str() would add a line number of its source.
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).lower().replace("_", " ")
