"""Connections in memory: real frames, codecs and `Connection` objects, without gRPC, on any clock."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeVar

import grpc

from colonnade.common.conversation.parcels import Begin, Parcel
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection
from colonnade.common.wire.frame import pack, unpack

_P = TypeVar("_P", bound=Parcel)
_ROOM = 64  # frames that one end may send ahead


class PipeEnd:
    """One end of a stream, as gRPC's. What was sent before the end can still be read."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.rung = asyncio.Event()
        self.over = False
        self.other: PipeEnd

    async def read(self) -> object:
        """The next frame, or grpc.aio.EOF."""
        while not self.frames:
            if self.over:
                return grpc.aio.EOF
            await self._change()
        self._ring()
        return self.frames.popleft()

    async def write(self, frame: bytes) -> None:
        """Sends a frame once there is room for it."""
        while len(self.other.frames) >= _ROOM and not self.over:
            await self._change()
        self.put(frame)

    def put(self, frame: bytes) -> None:
        """Sends a frame now."""
        if self.over:
            raise asyncio.InvalidStateError("the stream is over")
        self.other.frames.append(frame)
        self._ring()

    def close(self) -> None:
        """Ends both directions."""
        self.over = self.other.over = True
        self._ring()

    async def _change(self) -> None:
        await self.rung.wait()

    def _ring(self) -> None:
        for end in (self, self.other):
            end.rung.set()
            end.rung = asyncio.Event()


def pipe() -> tuple[PipeEnd, PipeEnd]:
    """Both ends of a new stream."""
    one, other = PipeEnd(), PipeEnd()
    one.other, other.other = other, one
    return one, other


def connected(end: PipeEnd, codec: Codec, largest: int, peer: str = "") -> Connection:
    """A real connection over one end; the stream ends when it is done."""
    connection = Connection(end, codec, largest)
    if peer:
        connection.peer = peer

    async def close() -> None:
        await connection.done.wait()
        end.close()

    connection.closing = asyncio.ensure_future(close())  # type: ignore[attr-defined]  # kept from the collector
    return connection


class Puppet:
    """An end that sends what a test chooses, and keeps what it hears.

    Args:
        end: of the stream.
        codec: of both directions.

    Attributes:
        session: of the frames that are sent and understood.
        heard: every parcel so far.
    """

    def __init__(self, end: PipeEnd, codec: Codec) -> None:
        self._end, self.codec, self.session = end, codec, 0
        self.heard: list[Parcel] = []
        self._taken = 0
        self._news = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    def send(self, *parcels: Parcel, session: int | None = None) -> None:
        """Sends parcels in one frame, of the present session by default."""
        frame = b""
        for parcel in parcels:
            frame += pack(parcel, self.session if session is None else session, self.codec)
            if isinstance(parcel, Begin):
                self.session = parcel.session
        self.send_bytes(frame)

    def send_bytes(self, frame: bytes) -> None:
        """Sends a frame as it is; nothing if the stream is over."""
        if not self._end.over:
            self._end.put(frame)

    async def hear(self, kind: type[_P]) -> _P:
        """Waits for the next parcel of a kind; skips others."""
        while True:
            while self._taken < len(self.heard):
                parcel = self.heard[self._taken]
                self._taken += 1
                if isinstance(parcel, kind):
                    return parcel
            if self._reading.done():
                raise EOFError(f"no {kind.__name__}")
            self._news.clear()
            await self._news.wait()

    async def next(self) -> Parcel | None:
        """Waits for the next parcel of any kind; None at the end of the stream."""
        while self._taken == len(self.heard):
            if self._reading.done():
                return None
            self._news.clear()
            await self._news.wait()
        self._taken += 1
        return self.heard[self._taken - 1]

    def said(self, kind: type[_P]) -> list[_P]:
        """All parcels of a kind so far."""
        return [parcel for parcel in self.heard if isinstance(parcel, kind)]

    @property
    def over(self) -> bool:
        """True if the stream has ended and everything was read."""
        return self._reading.done()

    def cut(self) -> None:
        """Ends the stream."""
        self._end.close()

    async def _read(self) -> None:
        try:
            while (frame := await self._end.read()) is not grpc.aio.EOF:
                assert isinstance(frame, bytes)
                for parcel in unpack(frame, self.session, self.codec):
                    self.heard.append(parcel)
                    if isinstance(parcel, Begin):
                        self.session = parcel.session
                self._news.set()
        finally:
            self._news.set()
