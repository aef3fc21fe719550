"""A client of raw HTTP/2 that sends as much as it may, ends no call, and replaces each that the server ends."""

from __future__ import annotations

import asyncio
import ssl
import struct
from dataclasses import dataclass, field

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
