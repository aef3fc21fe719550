"""A relay between a real server and real parties in memory, which disturbs their parcels by a script."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import grpc

from colonnade.client.dialling.membership import Membership
from colonnade.client.privacy.egress import ways_out
from colonnade.common.alignment.messages import all_kinds
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.conversation.parcels import Begin, Item, Open, Parcel, Refusal, Relayed, Rewind, Save
from colonnade.common.messaging.message import Kinds, Message, PartyMessage, TensorSpec, schema
from colonnade.common.wire.codec import VARINT, Codec, nested, read_fields, tag, varint
from colonnade.common.wire.connection import Connection
from colonnade.common.wire.frame import BODY, NAME_AT, PARCELS, SESSION, read_hello, unpack
from tests.support.in_memory import Members
from tests.support.pipe import PipeEnd, pipe

QUIET = 90.0
"""Virtual seconds without a parcel after which the relay cuts all lines: no time limit of a member is longer."""
Act = Literal["drop", "repeat", "hold", "again", "unbound", "delay", "cut", "before", "instead"]


@dataclass(frozen=True)
class Fault:
    """A disturbance of one parcel.

    Args:
        act: `drop` it; `repeat` it at once; `hold` it until a parcel of kind `other` has passed in its direction, which
            swaps them; pass it, and `again` after the next of kind `other`, or so without a session (`unbound`);
            `delay` it, and all that follow, by 15 s; `cut` the line in its place; or have a forged parcel of kind
            `other` pass `before` it, or `instead` of it.
        kind: of the parcel: a notice, or a message of the protocol.
        party: at the end of the line.
        number: of the parcel among those of its kind, party and direction, from 0.
        other: the second kind, "" for the next parcel of any.
        up: True for parcels of the party; None for either direction.
    """

    act: Act
    kind: str
    party: str
    number: int = 0
    other: str = ""
    up: bool | None = None


@dataclass
class Piece:
    """A parcel with its session, in bytes."""

    session: int
    kind: str
    body: bytes

    def frame(self) -> bytes:
        return b"".join([tag(SESSION, VARINT), varint(self.session), *nested(PARCELS, [self.body])])


class Passed(NamedTuple):
    """A parcel on a party's line; `up` if it is from the party."""

    party: str
    piece: Piece
    up: bool


Forge = Callable[["Relay", Fault, Piece], Piece]
"""Makes a parcel of the kind `other` of a fault, for the place of a parcel that is due."""


def _no_forger(_relay: Relay, fault: Fault, _due: Piece) -> Piece:
    raise NotImplementedError(f"nobody forges a {fault.other}")


def pieces(frame: bytes) -> Iterator[Piece]:
    """The parcels of a frame, of which only the kind is read."""
    session = 0
    for number, _, value in read_fields(memoryview(frame), 512):
        if number == SESSION:
            assert isinstance(value, int)
            session = value
            continue
        assert not isinstance(value, int)
        (what, _, body), *_ = read_fields(value)
        kind = NAME_AT[what]
        if what == BODY["Letter"]:
            assert not isinstance(body, int)
            named = next(part for field, _, part in read_fields(body) if field == 1)
            assert not isinstance(named, int)
            kind = bytes(named).decode()
        yield Piece(session, kind, bytes(value))


@dataclass
class Relay:
    """All lines of a federation, and what its members must never do.

    Args:
        there: the members.
        faults: the script.
        forge: makes parcels for faults of the kinds `before` and `instead`.

    Attributes:
        passed: every parcel that came to the relay, in order.
        struck: the faults that found their parcel.
        silences: times that nobody sent anything for `QUIET` seconds, so that all lines were cut.
        wrongs: rules that a member broke.
        stated: party and body of every statement that reached the server on that party's line.
    """

    there: Members
    faults: tuple[Fault, ...] = ()
    forge: Forge = _no_forger
    passed: list[Passed] = field(default_factory=list)
    struck: set[Fault] = field(default_factory=set)
    silences: int = 0
    wrongs: list[str] = field(default_factory=list)
    stated: set[tuple[str, bytes]] = field(default_factory=set)
    _seen: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _ends: list[PipeEnd] = field(default_factory=list)
    _waiting: dict[tuple[str, bool], list[tuple[str, Piece]]] = field(default_factory=dict)
    _last: float = 0.0
    _released: set[tuple[object, ...]] = field(default_factory=set)

    @cached_property
    def kinds(self) -> Kinds:
        """All messages of the run, by name."""
        federation = self.there.config.federation
        return all_kinds(federation, CONTRACTS[federation.protocol.name])

    @cached_property
    def codec(self) -> Codec:
        """Of both directions."""
        return Codec(self.kinds)

    def read(self, piece: Piece) -> list[Any]:
        """The parcel of a piece."""
        return list(unpack(piece.frame(), piece.session, self.codec))

    def through(self, server: PipeEnd) -> PipeEnd:
        """Lays a line: takes an end that leads to the server, and returns a party's."""
        party, ours = pipe()
        self._ends += [server, ours]
        line = _Line(self)
        for source, sink, up in ((ours, server, True), (server, ours, False)):
            self._tasks.append(asyncio.ensure_future(line.pump(source, sink, up=up)))
        return party

    async def end_silences(self) -> None:
        """Cuts all lines whenever nothing has passed for `QUIET` seconds. Runs until cancelled.

        A member that is connected and silent is the one case in which others wait without a limit.
        """
        while True:
            await asyncio.sleep(5)
            if asyncio.get_running_loop().time() - self._last > QUIET and any(not end.over for end in self._ends):
                self.silences += 1
                self.cut()

    def end(self) -> None:
        """Raises what a line failed with: its faults were not played."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def cut(self) -> None:
        """Ends all lines."""
        for end in self._ends:
            end.close()
        self._ends.clear()

    def note(self, party: str, piece: Piece, *, up: bool) -> list[Fault]:
        """Counts a parcel; returns the faults that are for it."""
        self._last = asyncio.get_running_loop().time()
        self.passed.append(Passed(party, piece, up))
        if up:
            self.check_release(party, piece)
        number = self._seen[party, piece.kind, up]
        self._seen[party, piece.kind, up] += 1
        found = [
            one for one in self.faults
            if (one.party, one.kind, one.number) == (party, piece.kind, number) and one.up in (None, up)
        ]  # fmt: skip
        self.struck.update(found)
        return found

    def check_release(self, party: str, piece: Piece) -> None:
        """Records a party that sends protected values of one round, stage and block twice in a session."""
        kind = self.kinds.get(piece.kind)
        if kind is None or not issubclass(kind, PartyMessage) or not (protected := ways_out(kind)):
            return
        (message,) = self.read(piece)
        if not any(getattr(message, name).numel() for name in protected):
            return  # it refuses a round
        numbers = [getattr(message, name) for name, spec in schema(kind).items() if not isinstance(spec, TensorSpec)]
        place = (party, piece.session, piece.kind, *numbers)
        if place in self._released:
            self.wrongs.append(f"{party} released {piece.kind} of {numbers} twice in session {piece.session}")
        self._released.add(place)

    def keep(self, party: str, piece: Piece, acts: Iterable[Fault], *, up: bool) -> None:
        """Keeps a parcel for later, also for the party's next line."""
        for fault in acts:
            if fault.act in ("hold", "again", "unbound"):
                one = Piece(0 if fault.act == "unbound" else piece.session, piece.kind, piece.body)
                self._waiting.setdefault((party, up), []).append((fault.other, one))

    def due(self, party: str, kind: str, *, up: bool) -> list[Piece]:
        """Takes the kept parcels that pass after one of a kind."""
        kept = self._waiting.get((party, up), [])
        self._waiting[party, up] = [(other, one) for other, one in kept if other not in ("", kind)]
        return [one for other, one in kept if other in ("", kind)]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Records every rule that a member breaks."""
        watch = _Watch(self)
        post, attend, deliver = Connection.post, Membership.attend, Link.deliver

        def posted(connection: Connection, parcel: Parcel) -> None:
            watch.posted(connection.peer, parcel)
            post(connection, parcel)

        async def attended(self: Membership, *args: Any, link: Link | None = None, **named: Any) -> bool:
            watch.live.append(link)
            try:
                return await attend(self, *args, link=link, **named)
            finally:
                watch.live.remove(link)

        def delivered(link: Link, item: Item) -> None:
            watch.delivered(link, item)
            deliver(link, item)

        with (
            patch.object(Connection, "post", posted),
            patch.object(Membership, "attend", attended),
            patch.object(Link, "deliver", delivered),
        ):
            yield


class _Line:
    """Both directions of one connection."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._party = relay, ""

    async def pump(self, source: PipeEnd, sink: PipeEnd, *, up: bool) -> None:
        def put(piece: Piece) -> None:
            if sink.over:
                return
            if up and piece.kind == "Statement":
                self._relay.stated |= {(self._party, one.body) for one in self._relay.read(piece)}
            sink.put(piece.frame())

        while (frame := await source.read()) is not grpc.aio.EOF:
            assert isinstance(frame, bytes)
            self._party = self._party or read_hello(frame).party
            for piece in pieces(frame):
                acts = {one.act: one for one in self._relay.note(self._party, piece, up=up)}
                if "cut" in acts:
                    source.close()
                    break
                if "delay" in acts:
                    await asyncio.sleep(15)
                for act in acts.keys() & {"before", "instead"}:
                    put(self._relay.forge(self._relay, acts[act], piece))
                if not acts.keys() & {"drop", "hold", "instead"}:
                    put(piece)
                if "repeat" in acts:
                    put(piece)
                for one in self._relay.due(self._party, piece.kind, up=up):
                    put(one)
                self._relay.keep(self._party, piece, acts.values(), up=up)
        sink.close()


class _Watch:
    """Rules that no disturbance may have a member break."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._begun: dict[str, int] = {}  # session of every party that is in one, as the server sees it
        self._committed = 0  # newest round that the server has called saved by all
        self.live: list[Link | None] = []  # links of party sides that run

    def posted(self, peer: str, parcel: Parcel) -> None:
        match parcel:
            case Begin():
                self._begun[peer] = parcel.session
                self._check_round(peer, parcel.round)
            case Rewind() | Refusal():
                self._begun.pop(peer, None)
            case Save(keep=keep):
                self._committed = max(self._committed, keep)
            case Relayed() if peer != SERVER:
                for said in parcel.statements():
                    if (said.party, said.body) not in self._relay.stated:
                        self._wrong(f"the server relayed to {peer} as {said.party}'s a statement that it has not sent")

    def delivered(self, link: Link, item: Item) -> None:
        what = f"{type(item).__name__} from {link.peer}"
        if link.peer != SERVER:
            if isinstance(item, Message) and link.peer not in self._begun:
                self._wrong(f"the server side got {what} outside of a session")
        elif not any(link is one for one in self.live):
            self._wrong(f"a party side got {what} outside of a session")
        elif isinstance(item, Open) and item.round <= link.newest:
            self._wrong(f"a party side was taken back from round {link.newest} to {item.round}")

    def _check_round(self, party: str, round: int) -> None:
        held = {int("".join(filter(str.isdigit, path.stem))) for path in self._checkpoints(party)}
        if round and round not in held:
            self._wrong(f"{party} is to go on from round {round} and holds {sorted(held)}")
        if round < self._committed:
            self._wrong(f"{party} is to go on from round {round} although all hold {self._committed}")

    def _checkpoints(self, party: str) -> list[Any]:
        return list((self._relay.there.home(party) / "checkpoints").glob("*.json"))

    def _wrong(self, text: str) -> None:
        self._relay.wrongs.append(text)
