"""A party that is here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from colonnade.common.conversation.conversation import Link
from colonnade.common.conversation.membership import Begin, Hello
from colonnade.common.errors import ColonnadeError, RefusedError
from colonnade.common.wire.connection import Connection
from colonnade.server.membership.admission import Admission

_HELLO_PATIENCE = 10.0  # seconds that a new connection has to say who it is
_REFUSAL_PAUSE = 1.0  # seconds before a certificate that may not come in is told so
_HELD = 2  # checkpoints that a party keeps


@dataclass
class Member:
    """Its connection, and what it said of itself.

    `ready` until it is told to rewind, and again from its next Hello on.
    """

    connection: Connection
    pem: bytes | None
    hello: Hello
    ready: bool = True
    parted: asyncio.Event = field(default_factory=asyncio.Event)

    def note_saved(self, round: int) -> None:
        """It has saved a round: its Hello, heard again, would say so."""
        held = (round, *(r for r in self.hello.held if r != round))
        self.hello = replace(self.hello, held=held[:_HELD])

    def begin(self, begin: Begin) -> None:
        """Tells it where its next session begins."""
        self.connection.post(begin)
        self.connection.session = begin.session

    def renew(self, hello: Hello, admission: Admission) -> None:
        """It is ready again. Raises RefusedError: it may no longer take part, or says that it is somebody else."""
        if hello.party != self.hello.party:
            raise RefusedError(f"{self.hello.party!r} now calls itself {hello.party[:80]!r}")
        admission.check(hello, self.pem)
        self.hello, self.ready = hello, True


@dataclass(frozen=True)
class Intake:
    """Where what a member sends goes: to the link of its session, if there is one.

    Args:
        member: who sends.
        link: of the session; None before the first.
    """

    member: Member
    link: Callable[[], Link | None]

    @property
    def full(self) -> bool:
        """Whether more is unread than the member may send ahead."""
        link = self.link()
        return link is not None and self._here and link.full

    async def room(self) -> None:
        """Waits until enough is read, or nobody will read it."""
        if (link := self.link()) is not None:
            await link.room()

    def expects(self, kind: str, round: int) -> bool:
        """Whether a message is of any use; of a session that was stopped, nothing is."""
        link = self.link()
        return link is None or (self._here and link.expects(kind, round))

    @property
    def _here(self) -> bool:
        return self.member.ready and not self.member.parted.is_set()


async def first_hello(connection: Connection) -> Hello:
    """What a new connection says first.

    Raises:
        RefusedError: it says something else, or nothing in time.
        PeerError: it is lost.
    """
    try:
        return await asyncio.wait_for(connection.hello(), _HELLO_PATIENCE)
    except TimeoutError:
        raise RefusedError(f"no Hello came within {_HELLO_PATIENCE:g} s") from None


async def screened(admission: Admission, pem: bytes | None) -> None:
    """Looks at a certificate. Raises as `Admission.screen`, after a while.

    Who is refused here comes again and again. A connection has one stream, so that it learns its refusal once a second.
    """
    try:
        admission.screen(pem)
    except ColonnadeError:
        await asyncio.sleep(_REFUSAL_PAUSE)
        raise
