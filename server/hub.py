"""Membership: who may join, who has joined, who is lost. The switchboard of the federation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from common.config import FederationConfig, differences
from common.conversation import Cohort, Link
from common.crypto.peers import verify_peer
from common.crypto.revocation import RevocationList
from common.errors import ColonnadeError, IdentityError, PartyFailed, PartyLost, RefusedError, nearest
from common.mailbox import Mailbox
from common.membership import WIRE_VERSION, Begin, Failure, Farewell, Hello, Parcel, Refusal, Welcome
from common.message import Message
from common.protocols.contract import Contract
from common.telemetry import Telemetry
from common.version import VERSION
from common.wire.connection import Connection

_HELLO_PATIENCE = 10.0  # seconds that a new connection has to say who it is
_REVOCATION_PERIOD = 1.0  # seconds between two looks at the list of revoked certificates


@dataclass
class Member:
    """A party that has joined."""

    connection: Connection
    link: Link
    parted: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Facts:
    """What the server knows of the data, which every party's must agree with."""

    rows: int
    official_test: int


class Hub:
    """Lets parties in and keeps their links.

    Args:
        federation: the agreed section; its roster says who may join.
        contract: of the federation's protocol.
        facts: of the labels.
        session: number of this start of the server.
        revoked: certificates that are no longer welcome.
        telemetry: told of everyone who joins, is refused, is late or lost.
        secure: whether certificates are checked (False on loopback only).
    """

    def __init__(
        self,
        federation: FederationConfig,
        contract: Contract,
        facts: Facts,
        session: int,
        revoked: RevocationList,
        telemetry: Telemetry,
        secure: bool = True,
    ) -> None:
        self._federation, self._contract, self._facts = federation, contract, facts
        self._session, self._revoked, self._telemetry, self._secure = session, revoked, telemetry, secure
        self._limits = contract.limits(federation)
        self._mailbox = Mailbox(self._late)
        self._hashes = federation.hashes()
        self._changed = asyncio.Event()
        self._begun = False
        self._closing: set[asyncio.Future[None]] = set()
        self.members: dict[str, Member] = {}
        self.round = 0

    async def greet(self, connection: Connection, pem: bytes | None) -> None:
        """Hears a new connection's Hello and lets it in, or says why not."""
        arrived: asyncio.Queue[Parcel | Exception] = asyncio.Queue()
        connection.attach(arrived.put_nowait, arrived.put_nowait)
        party = "unknown"
        try:
            hello = await _first(arrived)
            party = hello.party[:80]
            self._admit(connection, hello, pem)
        except ColonnadeError as refused:
            self._telemetry.refused(party, str(refused))
            connection.post(Refusal(str(refused), refused.hint))
            await connection.close()

    async def assemble(self, patience: float) -> Cohort:
        """Waits until the whole roster has joined, tells everyone, and returns their links.

        Raises:
            PartyLost: someone did not come within `patience` seconds; the message names all of them.
        """
        try:
            async with asyncio.timeout(patience):
                while missing := self._missing():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise PartyLost(
                ", ".join(missing),
                f"did not join within {patience:g} s",
                hint="start the missing parties, or raise server.patience",
            ) from None
        self._begun = True
        for member in list(self.members.values()):
            member.connection.post(Begin(self._federation.names))
        links = {name: self.members[name].link for name in self._federation.names}
        return Cohort(links, self._mailbox, self._round_opens)

    async def watch_revocations(self) -> None:
        """Cuts off parties whose certificate is revoked while they are here. Runs until cancelled."""
        said = ""
        while True:
            await asyncio.sleep(_REVOCATION_PERIOD)
            try:
                self._expel_revoked()
                said = ""
            except IdentityError as broken:  # nobody can join now; who is here stays until the list can be read
                if str(broken) != said:
                    self._telemetry.event("revocations", reason=str(broken))
                said = str(broken)

    def say_failure(self, party: str, error: BaseException) -> None:
        """Tells everyone who is left that the run has failed, and whose error it was."""
        for name, member in list(self.members.items()):
            if name != party:
                member.connection.post(Failure(party, str(error), getattr(error, "hint", "")))

    async def part(self, patience: float) -> None:
        """Says farewell and waits for the parties to do the same."""
        for member in list(self.members.values()):
            member.connection.post(Farewell())
        try:
            async with asyncio.timeout(patience):
                for member in list(self.members.values()):
                    await member.parted.wait()
        except TimeoutError:
            pass  # whoever is silent now has had all that it needs
        for member in list(self.members.values()):
            member.parted.set()
        await asyncio.gather(*(member.connection.close() for member in self.members.values()))

    def _admit(self, connection: Connection, hello: Hello, pem: bytes | None) -> None:
        self._check_identity(hello.party, pem)
        self._check_agreement(hello)
        self._check_rows(hello)
        if self._begun:
            raise RefusedError(f"{hello.party!r}: the federation has begun without it", hint="wait for the next run")
        if hello.party in self.members:
            raise RefusedError(f"{hello.party!r} has joined already", hint="start every party once")
        connection.peer, connection.session = hello.party, 0
        connection.post(Welcome(self._session))
        connection.session = self._session
        link = Link(hello.party, self._contract.kinds, self._limits, connection.post, self._mailbox)
        member = Member(connection, link)
        self.members[hello.party] = member
        connection.attach(partial(self._hear, hello.party, member), partial(self._lose, hello.party, member))
        self._telemetry.event("join", party=hello.party, joined=len(self.members), of=len(self._federation.names))
        self._changed.set()

    def _check_identity(self, party: str, pem: bytes | None) -> None:
        if self._secure:
            if pem is None:
                raise RefusedError(f"{party[:80]!r} showed no certificate", hint="run it without --insecure")
            verify_peer(pem, party, self._federation.parties, self._revoked)
        elif party not in self._federation.parties:
            near = nearest(party[:80], self._federation.parties)
            raise RefusedError(f"no party {party[:80]!r} is in the roster{near}")

    def _check_agreement(self, hello: Hello) -> None:
        party = hello.party
        if hello.federation != self._federation.id:
            raise RefusedError(f"{party!r} is of federation {hello.federation!r}, this is {self._federation.id!r}")
        if hello.wire != WIRE_VERSION or hello.version != VERSION:
            ours, theirs = f"{VERSION} (wire {WIRE_VERSION})", f"{hello.version} (wire {hello.wire})"
            raise RefusedError(f"{party!r} runs Colonnade {theirs}, the server {ours}", hint="install the same version")
        if differing := differences(self._hashes, hello.config):
            raise RefusedError(
                f"{party!r} has another federation section; it differs in {', '.join(differing)}",
                hint="give every member the same federation section",
            )

    def _check_rows(self, hello: Hello) -> None:
        ours = (self._facts.rows, self._facts.official_test)
        if (hello.rows, hello.official_test) != ours:
            raise RefusedError(
                f"{hello.party!r} has {_in_rows(hello.rows, hello.official_test)}, the labels have {_in_rows(*ours)}",
                hint="all members need the same rows in the same order",
            )

    def _hear(self, party: str, member: Member, parcel: Parcel) -> None:
        if member.parted.is_set():
            return
        match parcel:
            case Failure(reason=reason, hint=hint):
                self._telemetry.event("failed", party=party, reason=reason)
                member.parted.set()
                member.link.lose(PartyFailed(party, reason, hint=hint))
            case Farewell() if self._begun:
                member.parted.set()
            case Message():
                member.link.deliver(parcel)
            case _:
                self._expel(party, member, f"it sent {type(parcel).__name__} out of turn")

    def _lose(self, party: str, member: Member, error: Exception) -> None:
        if member.parted.is_set():
            return
        member.parted.set()
        self._telemetry.event("leave", party=party, reason=str(error))
        if self._begun:
            member.link.lose(error)
        else:  # it may come again: nothing has been said yet
            del self.members[party]
            self._changed.set()

    def _expel_revoked(self) -> None:
        self._revoked.refresh()
        for party, member in list(self.members.items()):
            reason = self._revoked.reason(self._federation.parties[party])
            if reason is not None and not member.parted.is_set():
                self._expel(party, member, f"its certificate is revoked: {reason}")

    def _expel(self, party: str, member: Member, reason: str) -> None:
        self._telemetry.refused(party, reason)
        member.connection.post(Refusal(f"{party!r}: {reason}"))
        self._lose(party, member, RefusedError(f"{party!r} was cut off: {reason}"))
        closing = asyncio.ensure_future(member.connection.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _missing(self) -> list[str]:
        return [name for name in self._federation.names if name not in self.members]

    def _round_opens(self, round: int) -> None:
        self.round = round

    def _late(self, party: str, message: Message) -> None:
        kind = type(message).__name__
        self._telemetry.event("late", party=party, kind_of=kind, round=message.round, now=self.round)

    def late(self) -> Mapping[str, int]:
        """Messages by party that came after their round."""
        return dict(self._mailbox.late)


async def _first(arrived: asyncio.Queue[Parcel | Exception]) -> Hello:
    try:
        first = await asyncio.wait_for(arrived.get(), _HELLO_PATIENCE)
    except TimeoutError:
        raise RefusedError(f"no Hello came within {_HELLO_PATIENCE:g} s") from None
    if isinstance(first, Exception):
        raise first
    if not isinstance(first, Hello):
        raise RefusedError(f"{type(first).__name__} came before Hello")
    return first


def _in_rows(rows: int, official_test: int) -> str:
    return f"{rows} rows" + (f" ({official_test} of them a test part)" if official_test else "")
