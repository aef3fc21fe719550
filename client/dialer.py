"""A party's membership: joining the server, staying in the conversation, parting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from common.conversation import SERVER, Close, Link, Open
from common.crypto.identity import Identity
from common.crypto.names import dns_name
from common.crypto.peers import verify_peer
from common.crypto.probe import fetch_certificate
from common.crypto.revocation import RevocationList
from common.errors import ColonnadeError, ContractError, PartyFailed, PartyLost, PeerError, RefusedError
from common.membership import Begin, Failure, Farewell, Hello, Parcel, Refusal, Welcome
from common.message import Message
from common.telemetry import Telemetry
from common.wire.codec import Codec
from common.wire.connection import Connection
from common.wire.dial import ClientTls, Dialer

_N = TypeVar("_N", Welcome, Begin)

_PARTING = 10.0  # seconds that the server has for its farewell


class Membership:
    """One membership in a federation, from Hello to Farewell.

    Args:
        codec: of the agreed protocol.
        largest: bytes of the largest frame that the server may send.
        telemetry: of this party.
    """

    def __init__(self, codec: Codec, largest: int, telemetry: Telemetry) -> None:
        self._dialer = Dialer(codec, largest)
        self._telemetry = telemetry
        self._connection: Connection | None = None
        self._notices: asyncio.Queue[Parcel | Exception] = asyncio.Queue()
        self._parted = asyncio.Event()
        self._link: Link | None = None

    async def join(
        self, hello: Hello, find_address: Callable[[], str], identity: Identity | None, pin: str, patience: float
    ) -> None:
        """Dials, says Hello, and waits until the whole roster is there.

        Raises:
            EnvironmentFault: the server did not come within `patience` seconds.
            RefusedError: the server, or its certificate, turned us away.
            PartyFailed: the federation failed before it began.
        """
        self._connection = await self._dialer.dial(find_address, partial(_trust, identity, pin), patience)
        self._connection.attach(self._notices.put_nowait, self._notices.put_nowait)
        self._connection.post(hello)
        await self._notice(Welcome)
        self._telemetry.event("join", party=hello.party)
        await self._notice(Begin)

    async def attend(self, link: Link, half: Callable[[], Awaitable[None]]) -> None:
        """Runs our half while its messages come in; tells the server if it fails."""
        self._link = link
        assert self._connection is not None  # join comes first
        self._connection.attach(self._hear, self._lost)
        while not self._notices.empty():
            early = self._notices.get_nowait()
            self._lost(early) if isinstance(early, Exception) else self._hear(early)
        try:
            await half()
        except Exception as error:
            if isinstance(error, ContractError) or not isinstance(error, PeerError):  # else the server knows already
                self._connection.post(Failure("", _in_a_line(error), getattr(error, "hint", "")))
            raise
        self._connection.post(Farewell())
        with contextlib.suppress(TimeoutError):  # a server that is still busy has had our farewell
            await asyncio.wait_for(self._parted.wait(), _PARTING)

    def post(self, parcel: Parcel) -> None:
        """Sends a parcel to the server."""
        assert self._connection is not None  # join comes first
        self._connection.post(parcel)

    async def leave(self) -> None:
        """Sends what is left and hangs up."""
        if self._connection is not None:
            await self._connection.close()
        await self._dialer.close()

    async def _notice(self, kind: type[_N]) -> _N:
        notice = await self._notices.get()
        if isinstance(notice, Exception):
            raise notice
        if isinstance(notice, kind):
            return notice
        raise _as_error(notice)

    def _hear(self, parcel: Parcel) -> None:
        assert self._link is not None  # attached together
        match parcel:
            case Message() | Open() | Close():
                self._link.deliver(parcel)
            case Farewell():
                self._parted.set()
            case _:
                self._link.lose(_as_error(parcel))

    def _lost(self, error: Exception) -> None:
        assert self._link is not None  # attached together
        if not self._parted.is_set():
            self._link.lose(error)
        self._parted.set()


def _trust(identity: Identity | None, pin: str, host: str, port: int) -> ClientTls | None:
    """Compares the certificate that the server shows with its pin."""
    if identity is None:
        return None
    certificate = fetch_certificate(host, port, identity)
    verify_peer(certificate, SERVER, {SERVER: pin}, RevocationList())
    return ClientTls(identity.key_pem, identity.chain_pem, certificate, dns_name(SERVER))


def _as_error(parcel: Parcel) -> PeerError:
    match parcel:
        case Refusal(reason=reason, hint=hint):
            return RefusedError(f"the server refused: {reason}", hint=hint)
        case Failure(party=party, reason=reason, hint=hint):
            return PartyFailed(party or "server", reason, hint=hint)
        case _:
            return PartyLost("server", f"it sent {type(parcel).__name__} out of turn")


def _in_a_line(error: Exception) -> str:
    text = str(error) if isinstance(error, ColonnadeError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())
