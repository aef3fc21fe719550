"""A connected party."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from colonnade.common.conversation.conversation import Link
from colonnade.common.conversation.parcels import Begin, Close, Hello, Item, Parcel, Statement
from colonnade.common.conversation.session import ENDED, PRESENT, SessionState, Stage, View
from colonnade.common.conversation.stream import Stream
from colonnade.common.errors import ColonnadeError, FloodError, RefusedError
from colonnade.common.messaging.message import Message
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.version import VERSION
from colonnade.server.member.admission import Admission

_HELLO_PATIENCE = 10.0  # seconds that a new connection has for its Hello
REFUSAL_PAUSE = 1.0  # seconds before a refused certificate is reported to its sender
_NOTICES = 32  # notices that a party may send in a session, and as many statements, plus
_NOTICES_A_ROUND = 4  # for each round: an honest party sends two at a checkpoint
_HELD = 3  # checkpoints that a party keeps: the newest, the sound one before it, and the best


@dataclass
class Member:
    """A party's connection, the state of its session, and its latest Hello, which was accepted.

    `parted` is set once the party's part has ended: it has said farewell, has failed, or is gone.
    """

    connection: Stream
    pem: bytes | None
    hello: Hello
    session: SessionState = field(default_factory=lambda: SessionState(View.SERVER, Stage.GREETED))
    parted: asyncio.Event = field(default_factory=asyncio.Event)
    prepares: bool = False
    _begun: int = 0
    _notices: int = 0
    _statements: int = 0

    def count(self, parcel: Parcel, round: int) -> None:
        """Counts a parcel that is no message; messages have limits of their own.

        Raises FloodError, which ends the connection, if the party sent more than a session needs up to this round.
        """
        self._notices += not isinstance(parcel, Message | Statement)
        self._statements += isinstance(parcel, Statement)
        most = _NOTICES + _NOTICES_A_ROUND * max(round - self._begun, 0)
        if (count := max(self._notices, self._statements)) > most:
            got = f"{count}, the last of them {type(parcel).__name__}"
            raise FloodError(self.hello.party, "a frame", "", f"at most {most} notices by round {round}", got)

    def note_saved(self, round: int, error: str) -> None:
        """Records a round that was saved without an error, so that `hello.held` stays current between Hellos."""
        if error:
            return
        held = (round, *(r for r in self.hello.held if r != round))
        self.hello = replace(self.hello, held=held[:_HELD])

    @property
    def state(self) -> Stage:
        return self.session.state

    def hear(self, heard: Parcel | Exception) -> bool:
        """Takes in what the party has sent, as `SessionState.hear`."""
        taken = self.session.hear(heard)
        self._note_end()
        return taken

    def say(self, parcel: Parcel) -> None:
        """Sends a parcel, unless the party's state does not allow it."""
        if self.session.say(parcel):
            self.connection.post(parcel)
        self._note_end()

    def carry(self, item: Item) -> None:
        if isinstance(item, Close):
            self.session.say(item)
        self.connection.post(item)

    def end(self) -> None:
        self.session.end()
        self._note_end()

    def begin(self, begin: Begin) -> None:
        self._begun, self._notices, self._statements = begin.round, 0, 0
        self.say(begin)
        self.connection.session = begin.session

    def renew(self, hello: Hello, admission: Admission) -> None:
        """Accepts the party's next Hello. Raises RefusedError if it may no longer take part or has changed its name."""
        if hello.party != self.hello.party:
            raise RefusedError(f"{self.hello.party!r} now calls itself {hello.party[:80]!r}")
        admission.check(hello, self.pem)
        self.hello = hello

    def _note_end(self) -> None:
        if self.state in ENDED:
            self.parted.set()
        else:
            self.parted.clear()


@dataclass(frozen=True)
class Intake:
    """Routes a member's messages to the link of its session; `link` returns None before the first session."""

    member: Member
    link: Callable[[], Link | None]

    @property
    def full(self) -> bool:
        """True if the member has sent ahead more unread messages than allowed."""
        link = self.link()
        return link is not None and self._here and link.full

    async def room(self) -> None:
        """Waits until enough messages are read or the link closes."""
        if (link := self.link()) is not None:
            await link.room()

    def expects(self, kind: str, round: int) -> bool:
        """True if a message can still be used; messages of a stopped session cannot."""
        link = self.link()
        return link is None or (self._here and link.expects(kind, round))

    @property
    def _here(self) -> bool:
        return self.member.state in PRESENT


class Versions:
    """Warns once per party whose Colonnade version differs from the server's within one series."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self.others: dict[str, str] = {}

    def note(self, party: str, version: str) -> None:
        if version != self.others.get(party, VERSION) and version != VERSION:
            reason = f"runs Colonnade {version}, the server {VERSION}: releases of one series"
            self._telemetry.event("warning", party=party, reason=reason)
        if version == VERSION:
            self.others.pop(party, None)
        else:
            self.others[party] = version


async def first_hello(connection: Stream) -> Hello:
    """The first message of a new connection. Raises RefusedError if it is not a Hello, or none came in time."""
    try:
        return await asyncio.wait_for(connection.hello(), _HELLO_PATIENCE)
    except TimeoutError:
        raise RefusedError(f"no Hello came within {_HELLO_PATIENCE:g} s") from None


async def screened(admission: Admission, pem: bytes | None) -> None:
    """Checks a certificate. Raises as `Admission.screen`, but only after a second: a refused party redials at once."""
    try:
        admission.screen(pem)
    except ColonnadeError:
        await asyncio.sleep(REFUSAL_PAUSE)
        raise
