"""A party's membership: joining the server, the conversation, and the farewell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from colonnade.client.dialling.dial import ClientTls, Dialer, Dialling, fetch_certificate
from colonnade.client.dialling.instructions import ended_early
from colonnade.common.conversation.capacity import Bounded, Capacity, bound
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.parcels import (
    Begin,
    Failure,
    Farewell,
    Hello,
    Item,
    Parcel,
    Refusal,
    Rewind,
    Welcome,
)
from colonnade.common.conversation.session import SessionState, Stage, View
from colonnade.common.conversation.stream import Stream, WireBytes
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.pki.names import dns_name
from colonnade.common.crypto.pki.revocation import RevocationList, verify_peer
from colonnade.common.errors import (
    DIVERGED,
    ContractError,
    PartyAway,
    PartyFailed,
    PartyLost,
    PeerError,
    RefusedError,
    TrainingDiverged,
    declared,
)
from colonnade.common.messaging.message import Message, memory
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.wire.codec import Codec

_N = TypeVar("_N", bound=Parcel)

_HEARD = (PartyFailed, PartyLost, RefusedError)  # errors elsewhere, of which the server told us
_LEAVING = 0.1  # seconds in which a parcel leaves
_PARTING = 60.0  # seconds that the server has for its farewell: other parties may be slower


class Membership:
    """One membership in a federation, from Hello to Farewell, over as many connections as needed.

    Args:
        largest: bytes of the largest frame that the server may send.
        ledger: the party's; None records no control messages (tests).
        transport: makes the party's end of connections.
    """

    def __init__(
        self,
        codec: Codec,
        largest: int,
        telemetry: Telemetry,
        ledger: Path | None = None,
        transport: Callable[[Codec, int], Dialling] = Dialer,
    ) -> None:
        self._dialer = transport(codec, largest)
        self._telemetry, self._path, self._ledger = telemetry, ledger, Ledger(ledger)
        self._connection: Stream | None = None
        self._largest = largest
        self._inbox = Inbox(largest)
        self._link: Link | None = None
        self._deliver: Callable[[Item], None] | None = None
        self._stop: asyncio.Future[Parcel | Exception] | None = None
        self._farewell, self._last = asyncio.Event(), True
        self._session = SessionState(View.PARTY)
        self._wire = WireBytes()

    @property
    def wire(self) -> tuple[int, int]:
        """Bytes sent and received so far: whole gRPC messages, before HTTP/2 and TLS. Thread-safe."""
        return self._wire.sent, self._wire.received

    @property
    def gone(self) -> bool:
        return self._connection is None or self._connection.done.is_set()

    @property
    def unsent(self) -> int:
        """Number of parcels that wait for the connection. Thread-safe."""
        now = self._connection
        return 0 if now is None else now.unsent

    async def join(
        self, hello: Hello, find_address: Callable[[], str], identity: Identity | None, pin: str, patience: float
    ) -> None:
        """Dials, says Hello, and waits for the welcome.

        Raises:
            EnvironmentFault: the server did not answer within `patience` seconds.
            RefusedError: the server refused us, or its certificate is not the pinned one.
            PartyAway: the connection broke again.
        """
        self._inbox, self._session = Inbox(self._largest), SessionState(View.PARTY)
        self._connection = await self._dialer.dial(find_address, partial(_trust, identity, pin), patience)
        self._connection.count_in(self._wire)
        self._connection.attach(self._hear, self._hear, self)
        self.post(hello)
        await self._await(Welcome)
        self._telemetry.event("join", party=hello.party)

    async def begin(self) -> Begin | None:
        """Waits until the whole roster is present; None if the run ended without us. Raises PeerError."""
        begun = await self._await(Begin, Farewell)
        return begun if isinstance(begun, Begin) else None

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Reports unusable input to the server, without the details that others may not read."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, PeerError):
                self.post(Failure("", *declared(error)))
            raise

    def greet_again(self, hello: Hello) -> None:
        for _ in range(len(self._inbox)):
            heard = self._inbox.get_nowait()
            if not isinstance(heard, Item):  # queued items belong to the previous session
                self._inbox.put(heard)
        self.post(hello)

    async def attend(
        self,
        deliver: Callable[[Item], None],
        side: Callable[[], Awaitable[None]],
        *,
        last: bool = True,
        link: Link | None = None,
    ) -> bool:
        """Runs the party side while its messages come in; reports its failure to the server.

        Args:
            last: True if the run ends with this side and the farewell follows; else messages that the link does not
                declare wait for the next side.
            link: the party side's; while it is full, nothing more is read.

        Returns:
            True if the party side has ended; False if the server wants to go back to a common checkpoint.

        Raises:
            PartyAway: the connection broke. The server may come back.
            PeerError: the server has refused us, or the run has failed elsewhere.
        """
        self._deliver, self._stop, self._link = deliver, asyncio.get_running_loop().create_future(), link
        self._last = last
        self._farewell.clear()
        for _ in range(len(self._inbox)):  # items after the end of the session are queued again
            self._hear(self._inbox.get_nowait())
        try:
            return await self._until_stopped(side)
        finally:
            self._deliver = self._stop = self._link = None
            if link is not None:
                link.mailbox.abandon()  # releases readers that wait for room

    @property
    def outlet(self) -> Capacity:
        """Capacity of the connection to the server: the party side waits while it is full."""
        assert self._connection is not None  # `join` was called
        return self._connection.outlet

    @property
    def full(self) -> bool:
        return self._inbox.full or (self._link is not None and self._link.full)

    async def room(self) -> None:
        while self.full:
            await (self._link.room() if self._link is not None and self._link.full else self._inbox.room())

    def expects(self, kind: str, round: int) -> bool:
        return self._link is None or kind not in self._link.kinds or self._link.expects(kind, round)

    def post(self, parcel: Parcel) -> None:
        """Sends a parcel to the server. A control message is entered in the ledger first; the egress enters others."""
        assert self._connection is not None  # `join` was called
        if not isinstance(parcel, Message):
            self._session.say(parcel)
            self._ledger.note(parcel, SERVER)
        self._connection.post(parcel)

    async def announce(self, parcel: Parcel) -> None:
        """Sends a parcel and lets it leave before work that blocks the event loop."""
        self.post(parcel)
        await asyncio.sleep(_LEAVING)

    async def leave(self) -> None:
        """Sends the remaining parcels and hangs up; anything received after this call is ignored."""
        if self._connection is not None:
            self._connection.attach(_ignore, _ignore)  # its end must not be taken for the end of the next connection
            await self._connection.close()
        await self._dialer.close()
        self._ledger.close()
        self._ledger = Ledger(self._path)  # of the next connection

    async def _until_stopped(self, side: Callable[[], Awaitable[None]]) -> bool:
        assert self._stop is not None  # set by `attend`
        running = asyncio.ensure_future(side())
        either: set[asyncio.Future[Any]] = {running, self._stop}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.done():
                await self._finish(running, self._stop)
        finally:
            if not running.done():
                running.cancel()
            await asyncio.wait({running})
            if not running.cancelled():
                running.exception()  # retrieved: otherwise asyncio logs a traceback when the server's error came first
        if not self._stop.done():
            return True
        stopped = self._stop.result()
        if isinstance(stopped, Rewind):
            return False
        raise self._told(stopped)

    async def _finish(self, side: asyncio.Future[None], stop: asyncio.Future[Any]) -> None:
        """Ends the party side: the last one says farewell, and waits for the server's farewell or error."""
        if (error := side.exception()) is not None:
            if not isinstance(error, _HEARD):  # the server knows about the others already
                self.post(Failure("", *declared(error)))
            if isinstance(error, TrainingDiverged):  # the server names the cause, or everyone goes back
                await self._hear_end(stop)
            if stop.done() and not isinstance(stop.result(), PartyAway):
                return
            raise error
        if not self._last:
            return
        self.post(Farewell())
        await self._hear_end(stop)  # a server that is still busy has received our farewell

    async def _hear_end(self, stop: asyncio.Future[Any]) -> None:
        parted = asyncio.ensure_future(self._farewell.wait())
        either: set[asyncio.Future[Any]] = {parted, stop}
        await asyncio.wait(either, timeout=_PARTING, return_when=asyncio.FIRST_COMPLETED)
        parted.cancel()

    async def _await(self, *kinds: type[_N]) -> _N:
        heard = await self._inbox.get()
        try:
            self._session.hear(heard)
        except ContractError as wrong:
            raise self._told(wrong) from None
        if isinstance(heard, kinds):
            return heard
        raise self._told(heard)

    def _told(self, heard: Parcel | Exception) -> Exception:
        """Converts what was heard into an error; a breach of contract is reported to the server."""
        error = heard if isinstance(heard, Exception) else _as_error(heard)
        if isinstance(error, ContractError):
            self.post(Failure("", *declared(error)))
        return error

    def _hear(self, heard: Parcel | Exception) -> None:
        if self._deliver is None or self._stop is None or self._stop.done():
            self._inbox.put(heard)  # also after Rewind: the next reader learns that the connection broke
            return
        item = heard if isinstance(heard, Item) else None
        if item and not self._last and self._link is not None and type(item).__name__ not in self._link.kinds:
            self._inbox.put(heard)
            return
        try:
            taken = self._session.hear(heard)
        except ContractError as wrong:
            self._stop.set_result(wrong)
            return
        if item is not None:
            if taken:
                self._deliver(item)
        elif self._session.state is Stage.DONE:
            self._farewell.set()  # what comes after it, the end of the connection, is no loss
        else:
            self._stop.set_result(ended_early() if isinstance(heard, Farewell) else heard)


def _ignore(_heard: Parcel | Exception) -> None: ...


def _trust(identity: Identity | None, pin: str, host: str, port: int) -> ClientTls | None:
    if identity is None:
        return None
    certificate = fetch_certificate(host, port, identity)
    verify_peer(certificate, SERVER, {SERVER: pin}, RevocationList())
    return ClientTls(identity.key_pem, identity.chain_pem, certificate, dns_name(SERVER))


def _as_error(parcel: Parcel) -> PeerError:
    match parcel:
        case Refusal(reason=reason, hint=hint):
            return RefusedError(f"the server refused: {reason}", hint=hint)
        case Failure(reason=reason, hint=hint) if reason.startswith(DIVERGED):
            return PeerError(f"the run ended: {reason}", hint=hint, shared=reason)
        case Failure(party=party, reason=reason, hint=hint):
            return PartyFailed(party or "server", reason, hint=hint)
        case _:
            raise AssertionError(type(parcel).__name__)  # the session's table ends with nothing else


_NOTICE = 512  # bytes counted for an item that is not a message

Heard = Parcel | Exception


class Inbox(Bounded):
    def __init__(self, largest: int) -> None:
        super().__init__()
        self._most = bound(largest)
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._bytes = 0

    def __len__(self) -> int:
        return self._heard.qsize()

    @property
    def full(self) -> bool:
        return self._bytes > self._most

    def put(self, heard: Heard) -> None:
        self._bytes += _size(heard)
        self._heard.put_nowait(heard)

    async def get(self) -> Heard:
        return self._taken(await self._heard.get())

    def get_nowait(self) -> Heard:
        return self._taken(self._heard.get_nowait())

    def _taken(self, heard: Heard) -> Heard:
        self._bytes -= _size(heard)
        self._left.set()
        return heard


def _size(heard: Heard) -> int:
    return memory(heard) if isinstance(heard, Message) else _NOTICE
