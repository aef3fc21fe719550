"""One party's stream, used by both ends.

gRPC runs in the member's event loop. A long torch computation does not stall the transport below (TCP, TLS, flow
control, keepalives), which runs in gRPC's own threads. Posted parcels wait until the event loop runs and are then sent
as one frame, so that an update and the opening of the next round are sent together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from colonnade.common.conversation.capacity import Outbox
from colonnade.common.conversation.parcels import Begin, Hello, Parcel
from colonnade.common.conversation.stream import Everything, Inlet, WireBytes
from colonnade.common.errors import ContractError, FloodError, PartyAway
from colonnade.common.text import escaped
from colonnade.common.wire.codec import Codec, WireError
from colonnade.common.wire.frame import MOST_PARCELS, pack, read_hello, unpack
from colonnade.common.wire.grpc_bounds import fixed_window

_OVERHEAD = 64  # overhead bytes of a waiting frame
_IDLE_FRAMES = 4096  # unused frames in excess of used ones, such as those of an earlier session
IDLE_LARGEST = 64  # unused bytes of a session, in multiples of the largest frame and of at least 1 MB
CLOSING = 5.0  # seconds for a peer to read the rest when its stream is closed

# Keepalives detect a dead peer within 20 s, also on an idle stream, and tolerate one that hangs for 10 s. gRPC has two
# names for the ping timeout, and uses the second.
KEEPALIVE = [
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 14_000),
    ("grpc.http2.ping_timeout_ms", 14_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
]

AHEAD_OF_READER = 4 << 20
"""Bytes that a party's end takes before they are read: a few messages, so that none waits for a window to open."""

_FRAME = 1 << 20  # bytes of an HTTP/2 frame


def channel_options(largest: int, ahead: int = AHEAD_OF_READER) -> list[tuple[str, object]]:
    """gRPC's settings at either end, for a receiver of frames of at most `largest` bytes.

    gRPC drops a stream that exceeds its size limit without telling the server the reason. So its limit is a multiple of
    ours, which catches the sizes in between with an error that names the sender.

    Args:
        ahead: bytes that the transport may take of a stream which is not read.
    """
    cap = min(4 * largest + (16 << 20), (1 << 31) - 1)
    sizes = [("grpc.max_receive_message_length", cap), ("grpc.max_send_message_length", -1)]
    return [*KEEPALIVE, *fixed_window(ahead), ("grpc.http2.max_frame_size", _FRAME), *sizes]


class Duplex(Protocol):
    """Common interface of gRPC's two stream objects: a call at the client, a context at the server."""

    async def read(self) -> Any:
        """The next frame, or grpc.aio.EOF."""

    async def write(self, frame: bytes) -> None:
        """Sends a frame; returns when the transport has room for the next."""


class Connection:
    """A stream of parcels over gRPC. Nothing is read before `hello` or `attach` is called.

    Args:
        largest: maximum bytes of a frame.

    Attributes:
        peer: the other end's name, for errors.
        address: the peer's, at the server.
        session: number of the current session; frames of other sessions are skipped.
        wire: bytes so far; those of all the peer's connections once `count_in` has joined them.
        done: set when the stream has ended, by either end.
    """

    def __init__(self, stream: Duplex, codec: Codec, largest: int) -> None:
        self.peer, self.address = "the other end", ""
        self.session = 0
        self.wire = WireBytes()
        self.done = asyncio.Event()
        self.stream, self._codec, self._largest = stream, codec, largest
        self._receive: Callable[[Parcel], None] = lambda _parcel: None
        self._lost: Callable[[Exception], None] = lambda _loss: None
        self._inlet: Inlet = Everything()
        self._loss: Exception | None = None
        self._over = asyncio.Event()  # nothing more can be sent or received
        self.outlet: Outbox[bytes] = Outbox(largest)
        self._useless = 0  # unused frames, less used ones
        self._useless_bytes, self._useless_in = 0, 0  # of a session
        self._writer: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None

    async def hello(self) -> Hello:
        """Reads the first frame only.

        Raises:
            ContractError: it is too large, or holds anything but a Hello.
            PartyAway: the stream has ended.
        """
        try:
            frame = await self.stream.read()
            if frame is grpc.aio.EOF:
                raise PartyAway(self.peer, "the connection was closed")
            self.wire.received += len(frame) + 5
            return read_hello(frame)
        except WireError as malformed:
            raise malformed.of(self.peer) from None
        except grpc.RpcError as broken:
            raise self._in_words(broken) from None

    def attach(
        self, receive: Callable[[Parcel], None], lost: Callable[[Exception], None], inlet: Inlet | None = None
    ) -> None:
        """Sets the receiver of parcels, the callback at the end of the stream, and the signal of free room."""
        self._receive, self._lost, self._inlet = receive, lost, inlet or Everything()
        if self._loss is not None:
            lost(self._loss)
        elif self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read())

    def post(self, parcel: Parcel) -> None:
        """Sends a parcel; it is encoded before this returns."""
        if self._over.is_set():
            return
        frame = pack(parcel, self.session, self._codec)
        self.outlet.put(parcel, frame, len(frame) + _OVERHEAD)
        if self.outlet.hopeless:
            self._give_up()
            return
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def count_in(self, total: WireBytes) -> None:
        """Adds past and future bytes to a total, which outlives the connection."""
        total.received += self.wire.received
        total.sent += self.wire.sent
        self.wire = total

    @property
    def unsent(self) -> int:
        """Number of parcels that wait for the current write."""
        return len(self.outlet)

    def hang_up(self) -> None:
        """Handles the end of the stream: releases all waiters."""
        self._over.set()
        self.outlet.clear()

    async def close(self) -> None:
        """Sends the rest and ends the stream; waits only briefly for a peer that does not read."""
        leaving = asyncio.get_running_loop().create_task(self._say_the_last())
        _, stalled = await asyncio.wait({leaving}, timeout=CLOSING)
        for task in (*stalled, *([self._reader] if self._reader is not None else [])):
            task.cancel()
        self.done.set()

    def _give_up(self) -> None:
        """Treats a peer that does not read, while data for it accumulates, as disconnected."""
        size = self.outlet.bytes
        self.hang_up()
        self._loss = PartyAway(self.peer, f"it does not read: {size} bytes wait for it")
        for task in (self._writer, self._reader):
            if task is not None:
                task.cancel()
        self.done.set()

    async def _say_the_last(self) -> None:
        if self._writer is not None:
            await self._writer
        if isinstance(self.stream, grpc.aio.StreamStreamCall) and not self.done.is_set():
            # gRPC discards data that the server has not read yet when a stream is cut: the server, which may be busy,
            # reads to the end and then ends the stream itself.
            with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
                await self.stream.done_writing()
                await self.done.wait()

    async def _read(self) -> None:
        loss: Exception | None = None
        try:
            while True:
                if self._inlet.full:
                    await self._park()
                if (frame := await self.stream.read()) is grpc.aio.EOF:
                    break
                self._accept(frame)
        except WireError as malformed:
            loss = malformed.of(self.peer)
        except ContractError as broken:  # found by the receiver
            loss = broken
        except grpc.RpcError as broken:
            loss = self._in_words(broken)
        except asyncio.CancelledError:
            loss = PartyAway(self.peer, "the connection was cut")
        finally:
            self._loss = self._loss or loss or PartyAway(self.peer, "the connection was closed")
            self.hang_up()
            self._lost(self._loss)
            self.done.set()

    async def _park(self) -> None:
        """Suspends reading until there is room or the stream has ended."""
        waiting = {asyncio.ensure_future(self._inlet.room()), asyncio.ensure_future(self._over.wait())}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    def _accept(self, frame: bytes) -> None:
        self.wire.received += len(frame) + 5
        if len(frame) > self._largest:
            raise WireError(f"at most {self._largest} bytes", f"{len(frame)}")
        used = False
        for parcel in unpack(frame, self.session, self._codec, self._inlet.expects):
            if isinstance(parcel, Begin):  # before the next frame, which is of the new session, is read
                self.session = parcel.session
            self._receive(parcel)
            used = True
        self._useless = max(self._useless + (-1 if used else 1), 0)
        if not used:
            self._refuse_flood(len(frame))

    def _refuse_flood(self, size: int) -> None:
        """Counts the bytes of an unused frame. Raises FloodError."""
        if self._useless_in != self.session:
            self._useless_in, self._useless_bytes = self.session, 0
        self._useless_bytes += size
        most = IDLE_LARGEST * max(self._largest, 1 << 20)
        if self._useless > _IDLE_FRAMES or self._useless_bytes > most:
            expected = f"at most {_IDLE_FRAMES} frames that are empty or of another session"
            got = "more" if self._useless > _IDLE_FRAMES else f"more than {most >> 20} MB"
            raise FloodError(self.peer, "a frame", "", expected, got)

    async def _write(self) -> None:
        try:
            while self.outlet:
                frame = self._next_frame()
                self.wire.sent += len(frame) + 5
                await self.stream.write(frame)
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, asyncio.CancelledError):
            self.hang_up()  # the stream is over: its reader gets the reason and reports it

    def _next_frame(self) -> bytes:
        chunks = [self.outlet.take()]
        size = len(chunks[0])
        while self.outlet and len(chunks) < MOST_PARCELS:
            if size + self.outlet.first_size() - _OVERHEAD > self._largest:
                break
            chunks.append(self.outlet.take())
            size += len(chunks[-1])
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _in_words(self, broken: grpc.RpcError) -> Exception:
        code = broken.code().name if hasattr(broken, "code") else "UNKNOWN"
        details = broken.details() if hasattr(broken, "details") else str(broken)
        if code == "RESOURCE_EXHAUSTED":
            return ContractError(self.peer, "a frame", "", f"at most {self._largest} bytes", escaped(str(details)))
        return PartyAway(self.peer, f"the connection broke ({code.lower().replace('_', ' ')}: {escaped(str(details))})")
