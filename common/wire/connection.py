"""One party's stream, as both ends see it.

gRPC runs in a thread and event loop of its own (`WireThread`), the protocol half in another, so
that a half may sit in torch without stalling keepalives. They meet here: `post` encodes on the
half's thread and leaves the bytes in an outbox; the wire's thread writes all that waits there as
one frame, and hands what arrives to the half's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import grpc

from common.errors import ContractError, PartyLost
from common.membership import Parcel, Welcome
from common.wire.codec import Codec
from common.wire.fields import WireError
from common.wire.frame import pack, unpack

_T = TypeVar("_T")

_CLOSING = 5.0  # seconds that a peer has to read what is left when its stream is closed

# Keepalives find a dead peer within 20 s, also while nothing is said.
KEEPALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 8_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
]


def size_options(largest: int) -> list[tuple[str, int]]:
    """gRPC's limits for a receiver of frames of at most `largest` bytes.

    gRPC drops a stream that breaks its limit without telling the server why. So its limit is a
    multiple of ours, which catches what lies between with an error that names the sender.
    """
    cap = min(4 * largest + (16 << 20), (1 << 31) - 1)
    return [("grpc.max_receive_message_length", cap), ("grpc.max_send_message_length", -1)]


class WireThread:
    """A daemon thread with an event loop, in which everything of gRPC happens."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Starts a coroutine in the thread's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    async def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine in the thread's loop and waits for it in the caller's."""
        return await asyncio.wrap_future(self.start(coroutine))

    def stop(self) -> None:
        """Ends the thread once what it does now is done."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


class Duplex(Protocol):
    """What gRPC's two stream objects have in common: a call at the client, a context at the server."""

    async def read(self) -> Any:
        """The next frame, or grpc.aio.EOF."""

    async def write(self, frame: bytes) -> None:
        """Sends a frame; returns when the transport has room for the next."""


class Connection:
    """A stream of parcels over gRPC.

    Args:
        stream: gRPC's own object; used on the wire's thread only.
        codec: of the agreed protocol.
        largest: bytes that a frame may have.
        home: the event loop of the half, where `receive` and `lost` are called.
        wire: the thread that gRPC runs in.

    Attributes:
        peer: the other end's name, for errors.
        receive: takes what arrives; until it is set, arrivals wait.
        lost: told why nothing more will come.
        session: of the frames that are sent and accepted.
        bytes_in, bytes_out: gRPC messages with their 5-byte prefix, before HTTP/2 and TLS.
    """

    def __init__(
        self, stream: Duplex, codec: Codec, largest: int, home: asyncio.AbstractEventLoop, wire: WireThread
    ) -> None:
        self.peer = "the other end"
        self.session = 0
        self.bytes_in = self.bytes_out = 0
        self._stream, self._codec, self._largest = stream, codec, largest
        self._home, self._wire = home, wire
        self._early: deque[Parcel] = deque()
        self._receive: Callable[[Parcel], None] | None = None
        self._lost: Callable[[Exception], None] | None = None
        self._loss: Exception | None = None
        self._outbox: deque[bytes] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._waking = False
        self.done = asyncio.Event()  # set on the wire's loop: the server's handler waits for it

    # On the half's thread.

    def attach(self, receive: Callable[[Parcel], None], lost: Callable[[Exception], None]) -> None:
        """Says who takes the parcels from now on, and gives them those that came before."""
        self._receive, self._lost = receive, lost
        while self._early:
            receive(self._early.popleft())
        if self._loss is not None:
            lost(self._loss)

    def post(self, parcel: Parcel) -> None:
        """Sends a parcel; it is encoded before this returns."""
        self._outbox.append(pack(parcel, self.session, self._codec))
        if not self._waking:
            self._waking = True
            self._wire.loop.call_soon_threadsafe(self._wake)

    async def drain(self) -> None:
        """Waits until all that was posted is with the transport."""
        await self._wire.call(self._drained())

    async def close(self) -> None:
        """Sends what is left, if the peer still reads, and ends the stream."""
        await self._wire.call(self._finish())

    def _arrived(self, parcels: list[Parcel]) -> None:
        for parcel in parcels:
            if self._receive is None:
                self._early.append(parcel)
            else:
                self._receive(parcel)

    def _broken(self, error: Exception) -> None:
        if self._loss is None:
            self._loss = error
            if self._lost is not None:
                self._lost(error)

    # On the wire's thread.

    async def listen(self) -> None:
        """Reads frames until the stream ends, however it ends."""
        error: Exception | None = None
        try:
            while (frame := await self._stream.read()) is not grpc.aio.EOF:
                self.bytes_in += len(frame) + 5
                if len(frame) > self._largest:
                    raise WireError(f"at most {self._largest} bytes", f"{len(frame)}")
                parcels = list(unpack(frame, self.session, self._codec))
                self._adopt(parcels)
                self._home.call_soon_threadsafe(self._arrived, parcels)
        except WireError as malformed:
            error = malformed.of(self.peer)
        except grpc.RpcError as broken:
            error = self._in_words(broken)
        except asyncio.CancelledError:
            error = PartyLost(self.peer, "the connection was cut")
        finally:
            if not self._home.is_closed():
                gone = error or PartyLost(self.peer, "the connection was closed")
                self._home.call_soon_threadsafe(self._broken, gone)
            self.done.set()

    def _adopt(self, parcels: list[Parcel]) -> None:
        # Here and not at the half, which may still be busy when the session's next frame comes.
        for parcel in parcels:
            if isinstance(parcel, Welcome):
                self.session = parcel.session

    def _in_words(self, broken: grpc.RpcError) -> Exception:
        code = broken.code().name if hasattr(broken, "code") else "UNKNOWN"
        details = broken.details() if hasattr(broken, "details") else str(broken)
        if code == "RESOURCE_EXHAUSTED":
            return ContractError(self.peer, "a frame", "", f"at most {self._largest} bytes", str(details))
        return PartyLost(self.peer, f"the connection broke ({code.lower().replace('_', ' ')}: {details})")

    def _wake(self) -> None:
        self._waking = False
        if self._writer is None or self._writer.done():
            self._writer = self._wire.loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._outbox:
                frame = self._next_frame()
                self.bytes_out += len(frame) + 5
                await self._stream.write(frame)
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, asyncio.CancelledError):
            self._outbox.clear()  # the stream is over: its reader learns why, and says so

    def _next_frame(self) -> bytes:
        chunks = [self._outbox.popleft()]
        size = len(chunks[0])
        while self._outbox and size + len(self._outbox[0]) <= self._largest:
            chunks.append(self._outbox.popleft())
            size += len(chunks[-1])
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _drained(self) -> None:
        self._wake()
        if self._writer is not None:
            await self._writer

    async def _finish(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drained(), _CLOSING)
        self.done.set()
