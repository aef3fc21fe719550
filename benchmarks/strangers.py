"""`python -m benchmarks.strangers [CONNECTIONS]`: memory that strangers take at the two gRPC ports, each for 8 s.

Callers of `serve` without a token send as many calls of 1 MB as they may; at the federation's port, holders of a
certificate that is in no roster send one stream of 16 MB each. Server and strangers are processes on loopback.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.report import Figure
from benchmarks.runs import ROOT
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.wire.frame import METHOD as CONVERSE
from colonnade.server.prediction.serving.grpc_service import METHOD as PREDICT

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8
_END, _ACK, _WHOLE = 1, 1, 4  # flags: of a stream, of settings and pings, of headers
_STREAMS, _INITIAL = 3, 4  # settings
_FRAME = 16384


@dataclass
class _Call:
    room: int
    left: int
    begun: bool = False


@dataclass
class Greedy:
    """One connection.

    Args:
        calls: most at a time, within the server's limit.
        size: bytes of a message, whose last byte is withheld.

    Attributes:
        window: largest window of a stream that the server has offered, bytes.
        streams: concurrent streams that it allows.
        begun, sent: calls, and bytes of messages.
        held: most bytes of simultaneously open calls, none of which the server has ended.
    """

    path: bytes
    calls: int
    size: int = 1_000_000
    token: str = ""
    window: int = 65535
    streams: int = 1 << 31
    begun: int = 0
    sent: int = 0
    held: int = 0
    _open: dict[int, _Call] = field(default_factory=dict)
    _room: int = 65535
    _initial: int = 65535

    async def run(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Calls until it is cancelled, or the server ends the connection."""
        try:
            reader, self._writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            self._writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
            while True:
                head = await reader.readexactly(9)
                body = await reader.readexactly(int.from_bytes(head[:3], "big"))
                self._hear(head[3], head[4], int.from_bytes(head[5:], "big"), body)
                self._fill()
        except (OSError, asyncio.IncompleteReadError):
            pass

    def _hear(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            settings = dict(struct.iter_unpack(">HI", body))
            self.streams = settings.get(_STREAMS, self.streams)
            initial = settings.get(_INITIAL, self._initial)
            for call in self._open.values():
                call.room += initial - self._initial
            self._initial, self.window = initial, max(initial, self.window if self.begun else 0)
            self._writer.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._writer.write(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW:
            more = int.from_bytes(body, "big")
            if stream in self._open:
                self._open[stream].room += more
            self._room += more if not stream else 0
        elif kind == _RESET or (kind in (_DATA, _HEADERS) and flags & _END):
            self._open.pop(stream, None)

    def _fill(self) -> None:
        while len(self._open) < min(self.calls, self.streams):
            number = 2 * self.begun + 1
            self._writer.write(_frame(_HEADERS, _WHOLE, number, _headers(self.path, self.token)))
            self._open[number] = _Call(self._initial, self.size + 4)
            self.begun += 1
        for number, call in self._open.items():
            while (part := min(call.room, call.left, self._room, _FRAME)) > 0:
                start = b"" if call.begun else struct.pack(">BI", 0, self.size)[:part]
                self._writer.write(_frame(_DATA, 0, number, start.ljust(part, b"\0")))
                call.begun = True
                call.room, call.left, self._room = call.room - part, call.left - part, self._room - part
                self.sent += part
        self.held = max(self.held, sum(self.size + 4 - call.left for call in self._open.values()))


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def _headers(path: bytes, token: str) -> bytes:
    pairs = {
        b":method": b"POST", b":scheme": b"http", b":path": path, b":authority": b"here",
        b"content-type": b"application/grpc", b"te": b"trailers",
    }  # fmt: skip
    if token:
        pairs[b"authorization"] = f"Bearer {token}".encode()
    return b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in pairs.items())


SECONDS, BOUND = 8.0, 150.0

_SERVERS = {
    "serve": """
remote = Remote(Batcher(type("Model", (), {"names": ("a",), "classes": 1})), Tokens({"one": "x" * 40}, 1))
port = int((await remote.start("127.0.0.1:0", None)).rpartition(":")[2])
""",
    "federation": """
identity = load_identity(Path(sys.argv[1]) / "server")
async def greet(connection, pem):
    await asyncio.sleep(1)
    await connection.close()
listener = Listener(Codec(CONTRACT.kinds), 1 << 20, greet)
port = await listener.start("127.0.0.1:0", ServerTls(identity.key_pem, identity.chain_pem, identity.ca_pem))
""",
}
_PROGRAM = """
import asyncio, sys
from pathlib import Path
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.wire.codec import Codec
from colonnade.server.member.listen import Listener, ServerTls
from colonnade.server.prediction.serving.batching import Batcher
from colonnade.server.prediction.serving.grpc_service import Remote
from colonnade.server.prediction.serving.tokens import Tokens

async def main():
{body}
    print(port, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def main(connections: int = 150) -> list[Figure]:
    """Growth of a server's memory at its peak, MB."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="strangers-") as scratch:
        keys = Path(scratch)
        make_federation(keys, ["former"])
        for place, calls in (("serve", 8), ("federation", 1)):
            grown = _grown(place, keys, connections, calls)
            what = f"{place}: {connections} connections x {calls} calls"
            figures.append(Figure(f"{what}, memory at most", grown, BOUND, "MB"))
    return figures


def _grown(place: str, keys: Path, connections: int, calls: int) -> float:
    body = "\n".join(f"    {line}" for line in _SERVERS[place].splitlines())
    command = [sys.executable, "-c", _PROGRAM.format(body=body), str(keys)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port, process = int(server.stdout.readline()), psutil.Process(server.pid)
        before = process.memory_info().rss
        return (asyncio.run(_flood(place, port, keys, connections, calls, process)) - before) / 1e6
    finally:
        server.kill()
        server.wait()


async def _flood(place: str, port: int, keys: Path, connections: int, calls: int, process: psutil.Process) -> int:
    tls, path, size = None, PREDICT, 1_000_000
    if place == "federation":
        tls, path, size = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), CONVERSE, 16_000_000
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.load_cert_chain(keys / "former" / "cert.pem", keys / "former" / "key.pem")
        tls.set_alpn_protocols(["h2"])
    strangers = [asyncio.create_task(Greedy(path.encode(), calls, size).run(port, tls)) for _ in range(connections)]
    most, until = 0, time.monotonic() + SECONDS
    while time.monotonic() < until:
        most = max(most, process.memory_info().rss)
        await asyncio.sleep(0.05)
    for stranger in strangers:
        stranger.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
    return most


if __name__ == "__main__":
    for one in main(*map(int, sys.argv[1:2])):
        print(*one.cells(), sep=" | ")
