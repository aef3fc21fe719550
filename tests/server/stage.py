"""A hub without a network, on the virtual clock, with connections that a test simulates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.common.config.federation import FederationConfig
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.parcels import Hello, Parcel, Refusal
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import ContractError, PartyAway
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.version import VERSION
from colonnade.server.member.admission import Admission, DataShape, claimed
from colonnade.server.member.hub import Hub

RUN = "a-run"
FACTS = DataShape(100, 20)


def federation(pins: dict[str, str] | None = None, **values: Any) -> FederationConfig:
    fixed = {"id": "test", "protocol": "split", "classes": 2, "rounds": 3, "batch": 8, "seed": 0}
    roster: Any = pins or ["ada", "bob"]
    return parse({"federation": {**fixed, "parties": roster, **values}}).federation


def hello(party: str = "ada", of: FederationConfig | None = None) -> Hello:
    return Hello(party, "test", VERSION, config=(of or federation()).stated(), rows=100, official_test=20)


class FakeConnection:
    """A connection without a network: posted items are kept, arriving ones are put in by the test."""

    def __init__(self) -> None:
        self.peer, self.address, self.session = "the other end", "", 0
        self.posted: list[tuple[int, Parcel]] = []
        self.closed = asyncio.Event()
        self.first: asyncio.Future[Parcel | Exception] = asyncio.get_running_loop().create_future()

    async def hello(self) -> Hello:
        first = await self.first
        if isinstance(first, Exception):
            raise first
        if not isinstance(first, Hello):
            raise ContractError(self.peer, "a frame", "", "a Hello first", type(first).__name__)
        return first

    def count_in(self, _total: object) -> None:
        """Nothing passes."""

    def attach(self, receive: Any, lost: Any, inlet: Any) -> None:
        self.arrive, self.lose, self.inlet = receive, lost, inlet

    def lose(self, error: Exception) -> None:
        """A connection without a reader."""

    def post(self, parcel: Parcel) -> None:
        self.posted.append((self.session, parcel))

    async def close(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self.lose(PartyAway(self.peer, "the connection was cut"))

    @property
    def last(self) -> Parcel:
        return self.posted[-1][1]


@dataclass
class Stage:
    """A hub and its events."""

    hub: Hub
    agreed: FederationConfig
    revoked: RevocationList
    events: list[Event] = field(default_factory=list)
    saved: list[tuple[str, int, str]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    cohort: Cohort = field(init=False)
    restored: int = field(init=False)

    async def come(self, first: Parcel | Exception | None, pem: bytes | None = None) -> FakeConnection:
        """A new connection with these first items."""
        connection = FakeConnection()
        greeting = asyncio.create_task(self.hub.greet(connection, pem))  # type: ignore[arg-type]
        if first is not None:
            connection.first.set_result(first)
        await greeting
        return connection

    async def join(self, *parties: str) -> list[FakeConnection]:
        return [await self.come(hello(party, self.agreed)) for party in parties]

    async def assemble(self, patience: float, held: tuple[int, ...] = (), committed: int = 0) -> Cohort:
        """Begins a session once all have joined."""

        async def between(_round: int) -> None:
            await self.hub.gate()

        await self.hub.assemble(patience)
        self.cohort, self.restored = self.hub.begin(list(held), committed, between)
        return self.cohort

    def logged(self, kind: str) -> list[dict[str, Any]]:
        return [{k: v for k, v in e.items() if k not in ("kind", "time")} for e in self.events if e["kind"] == kind]


def close(cohort: Cohort) -> None:
    """Closes after the last round, as a protocol's server side does."""
    for link in cohort.values():
        link.close()


def stage(agreed: FederationConfig | None = None, revoked: Path | None = None, *, secure: bool = False) -> Stage:
    agreed, events = agreed or federation(), list[Event]()
    telemetry = Telemetry(None, events.append)
    listed, saved, gone = RevocationList(revoked), list[tuple[str, int, str]](), list[str]()
    admission = Admission(agreed, FACTS, RUN, listed, secure=secure)
    hub = Hub(agreed, CONTRACT, admission, RUN, telemetry, saved=lambda *what: saved.append(what), away=gone.append)
    return Stage(hub, agreed, listed, events, saved, gone)


async def in_session() -> tuple[Stage, FakeConnection, FakeConnection]:
    """A stage on which ada and bob have begun a session."""
    there = stage()
    ada, bob = await there.join("ada", "bob")
    await there.assemble(1)
    return there, ada, bob


async def refused(there: Stage, first: Parcel | Exception | None, pem: bytes | None = None, noted: str = "") -> Refusal:
    """Returns the answer; asserts that the refusal is an event, the stream is closed, and no party has joined.

    Args:
        noted: a part of the event's reason, if that is not sent to others.
    """
    before = set(there.hub.members)
    connection = await there.come(first, pem)
    assert isinstance(connection.last, Refusal) and connection.closed.is_set()
    event = there.logged("refused")[-1]
    assert event["party"] in (claimed(pem), first.party if isinstance(first, Hello) else "unknown")
    assert noted in event["reason"] if noted else event["reason"] == connection.last.reason
    assert set(there.hub.members) == before
    return connection.last
