"""`python -m benchmarks.flooders KIND PORT KEYS [RATE]`: strangers at a server's port on loopback, until killed.

The kind `sink` instead listens in the server's place, for the control run, and prints its port.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import resource
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc

from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.crypto.pki.names import SERVER, dns_name
from colonnade.common.wire.frame import METHOD

CONNECTIONS = 500  # a second
STREAMS = 200  # a second
FRAMES = 16  # of 64 kB a second, which is 1 MB
HELD = 8000  # most connections kept open
CHANNELS = 16
CROWD, CROWDED = 2000, 100  # concurrent streams, and connections

_PARCEL, _OTHER_SESSION = b"\x12\x00", b"\x08\x05"  # an empty parcel of two bytes, and an unknown session
_TLS = b"\x16\x03\x01\x02\x00\x01"  # a record that begins like a ClientHello
_HELLO = b"\x12\x02\x0a\x00"  # a parcel with an empty Hello
FILLED = {"parcels": _OTHER_SESSION + _PARCEL * 32000, "hellos": _HELLO * 16000, "revoked": _HELLO}


def connections(kind: str, port: int, keys: Path, rate: float) -> None:
    """Connections that say nothing, plain HTTP, random bytes, or TLS with a certificate of another authority."""
    held, draws = deque[socket.socket](), random.Random(port)
    for _ in _paced(rate):
        with suppress(OSError):
            one = socket.create_connection(("127.0.0.1", port), 5)
            held.append(one)
            if kind == "plain":
                one.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            elif kind == "garbage":
                one.sendall((_TLS if draws.random() < 0.5 else b"") + draws.randbytes(2000))
            elif kind == "foreign":
                held[-1] = _secured(one, keys)
        while len(held) > (HELD if kind == "silent" else 50):
            held.popleft().close()


def _secured(connection: socket.socket, keys: Path) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(keys / "foreign" / "cert.pem", keys / "foreign" / "key.pem")
    secured = context.wrap_socket(connection, server_hostname="localhost")
    secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
    return secured


async def streams(kind: str, port: int, keys: Path) -> None:
    """Streams with a revoked certificate: tiny ones, or large frames of tiny parcels."""
    turn, tasks = itertools.cycle(_channels(port, keys, CHANNELS)), set[asyncio.Task[None]]()
    pace = _paced(STREAMS if kind == "revoked" else FRAMES, wait=False)
    while True:
        if next(pace) and len(tasks) < 2 * STREAMS:
            task = asyncio.create_task(_stream(next(turn), FILLED[kind]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.001)


async def crowd(port: int, keys: Path) -> None:
    """Thousands of such streams at a time, reopened as fast as they are refused. Prints their number first."""
    channels = _channels(port, keys, CROWDED)

    async def again(channel: grpc.aio.Channel) -> None:
        while True:
            await _stream(channel)

    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    begun = [asyncio.create_task(again(channel)) for channel in channels for _ in range(CROWD // CROWDED)]
    await asyncio.sleep(0)  # every one has begun
    print(len(begun), flush=True)
    await asyncio.gather(*begun)


def _channels(port: int, keys: Path, count: int) -> list[grpc.aio.Channel]:
    identity, root = load_identity(keys / "former"), (keys / SERVER / "cert.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials(root, identity.key_pem, identity.chain_pem)
    options = [("grpc.ssl_target_name_override", dns_name(SERVER)), ("grpc.use_local_subchannel_pool", 1)]
    return [grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) for _ in range(count)]


async def _stream(channel: grpc.aio.Channel, words: bytes = b"") -> None:
    """One stream, until it is refused, which happens even without words."""
    with suppress(grpc.RpcError, asyncio.InvalidStateError, TimeoutError):
        async with asyncio.timeout(10):
            call = channel.stream_stream(METHOD)(wait_for_ready=True)  # a dead server costs nothing
            if words:
                await call.write(words)
            await call.read()
            call.cancel()


async def sink(keys: Path) -> None:
    """A bare gRPC server with the same certificates, which ends every stream at once."""
    identity = load_identity(keys / SERVER)

    async def nothing(_requests: object, _context: object) -> None:
        pass

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(nothing)
    _, service, method = METHOD.split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    pair = [(identity.key_pem, identity.chain_pem)]
    credentials = grpc.ssl_server_credentials(pair, identity.ca_pem, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    print(port, flush=True)
    await asyncio.sleep(3600)


def _paced(rate: float, *, wait: bool = True) -> Iterator[bool]:
    """Yields True `rate` times a second: waits until then, or without waiting yields False."""
    begin, done = time.monotonic(), 0
    while True:
        early = begin + done / rate - time.monotonic()
        if early > 0 and not wait:
            yield False
            continue
        time.sleep(max(early, 0))
        done += 1
        yield True


def main(kind: str, port: int, keys: Path, rate: float = CONNECTIONS) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if kind == "sink":
        asyncio.run(sink(keys))
    elif kind == "crowd":
        asyncio.run(crowd(port, keys))
    elif kind in FILLED:
        asyncio.run(streams(kind, port, keys))
    else:
        connections(kind, port, keys, rate)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *map(float, sys.argv[4:5]))
