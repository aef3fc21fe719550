"""The one abstraction: two straight-line halves in a conversation.

A protocol is a contract and two coroutines, `serve` at the server and `participate` at every
party. Both talk through the classes of this page and never learn what carries their messages:
one event loop on a virtual clock (common/inprocess.py) or gRPC over mutual TLS (common/wire).

    async def serve(ctx, clients: Cohort):          async def participate(ctx, server: Link):
        async for t in clients.rounds(n):               async for t in server.rounds():
            h = await clients.collect(Embedding, t, q)      await server.send(Embedding(t, ...))
            await clients.tell({k: Update(t, ...)})         update = await server.recv(Update, t)

The server opens rounds; a party follows the newest one that is open, so that a straggler always
catches up. A straggler policy is a `Quorum`: three numbers. Mail of a round that has passed is
dropped and counted. Whatever a peer does wrong raises here, at its receiver.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from common.errors import ContractError, PartyAway, PartyLost
from common.mailbox import Mailbox
from common.message import Kinds, M, Message, check, check_exact, check_finite, payload_bytes

SERVER = "server"


@dataclass(frozen=True)
class Open:
    """The server opens a round."""

    round: int


@dataclass(frozen=True)
class Close:
    """The server will open no more rounds."""


@dataclass(frozen=True)
class Save:
    """The server asks for a checkpoint of a round.

    `keep` is the one before, which lives until this is committed; `best` that of the best round so far.
    """

    round: int
    keep: int = 0
    best: int = 0


Control = Open | Close | Save
Item = Message | Control


class Carrier(Protocol):
    """Takes what a link sends to the other end, in order, without waiting."""

    def __call__(self, item: Item, /) -> None:
        """Carries one item. It is encoded or copied before this returns."""


@dataclass(frozen=True)
class Quorum:
    """How long a harvest waits, and for whom.

    Everyone: `Quorum()`. The fastest k: `Quorum(need=k)`. A deadline: `Quorum(need=0, grace=s)`.
    A coded threshold: `Quorum(need=R)`.

    Args:
        need: answers without which the round cannot go on; None means all.
        grace: seconds that the others get once `need` answers are there.
        limit: seconds after which a harvest without `need` answers gives the silent parties up.
    """

    need: int | None = None
    grace: float = 0.0
    limit: float = 60.0


M_co = TypeVar("M_co", bound=Message, covariant=True)


@dataclass(frozen=True)
class Harvest(Mapping[str, M_co]):
    """The answers of one kind and round by party, in the cohort's order.

    `missing` did not answer in time; `slowest` answered last, `lag` seconds after the first.
    """

    answers: Mapping[str, M_co]
    missing: tuple[str, ...]
    slowest: str = ""
    lag: float = 0.0

    def __getitem__(self, party: str) -> M_co:
        return self.answers[party]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)


@dataclass
class Traffic:
    """What has passed one link: payload bytes (tensors alone) and messages, by kind and direction."""

    sent: dict[str, list[int]] = field(default_factory=dict)
    received: dict[str, list[int]] = field(default_factory=dict)

    @staticmethod
    def count(book: dict[str, list[int]], message: Message) -> None:
        """Adds one message to `sent` or `received`: kind -> [messages, payload bytes]."""
        entry = book.setdefault(type(message).__name__, [0, 0])
        entry[0] += 1
        entry[1] += payload_bytes(message)


class Link:
    """One end of the conversation between two. Made by a transport, used by a half.

    Args:
        peer: who is at the other end.
        kinds: the messages that the protocol declares, by name; all others are refused.
        limits: the largest value of every dimension name.
        carry: the transport's way out.
        compress: what becomes of a message before it leaves.
        mailbox: where messages from this peer are filed; links of one cohort share it.

    Attributes:
        last: the last round that was agreed on; None knows none.
        on_save: called when a checkpoint was asked for and the half has come to the end of its round.
        keyed: whether everyone has agreed on keys for this session: who comes back has none of them.
        given_up: the round of the last checkpoint that was asked for here: of its round and those before,
            the other end gives up what is under way.
    """

    def __init__(
        self,
        peer: str,
        kinds: Kinds,
        limits: Mapping[str, int],
        carry: Carrier,
        mailbox: Mailbox | None = None,
        compress: Callable[[Message], Message] = lambda message: message,
    ) -> None:
        self.peer = peer
        self.kinds, self.limits = kinds, limits
        self.traffic = Traffic()
        self.mailbox = mailbox or Mailbox()
        self.on_save: Callable[[Save], None] = lambda _save: None
        self.keyed = False
        self.given_up = 0
        self.last: int | None = None
        self._carry, self._compress = carry, compress
        self._newest = 0
        self._closed = False
        self._asked: Save | None = None

    async def send(self, message: Message) -> None:
        """Sends one message. It leaves at once and may be changed or reused afterwards.

        Raises:
            ContractError: our own half breaks its contract.
            PeerError: the peer is known to be gone.
        """
        self._refuse_if_lost()
        if self.kinds.get(type(message).__name__) is not type(message):
            raise ContractError("this half", type(message).__name__, "", f"one of {sorted(self.kinds)}", "undeclared")
        check("this half", message, self.limits)
        message = self._compress(message)
        Traffic.count(self.traffic.sent, message)
        self._carry(message)

    def open(self, round: int) -> None:
        """Server only: opens a round at the other end."""
        self._carry(Open(round))

    def close(self) -> None:
        """Server only: there will be no more rounds."""
        self._carry(Close())

    def ask_to_save(self, save: Save) -> None:
        """Server only: asks the other end for a checkpoint."""
        self.given_up = save.round
        self._carry(save)

    def renew(self, carry: Carrier) -> None:
        """Transport only: the peer is back, over another connection; what it said before is forgotten."""
        self._carry = carry
        self.mailbox.welcome_back(self.peer)

    async def recv(self, kind: type[M], round: int, *, until: int = 0, **dims: int) -> M | None:
        """Waits for a message of a kind and round, whose dimensions must be these.

        Returns None when the server has done with the round without having sent it: this half is late
        and goes on with the newest round. A half that waits for nobody's round names the last one `until`
        which it waits, although the server opens others; a checkpoint that is asked for ends it all the same.

        Raises:
            ContractError: the message has other dimensions, or an earlier one broke the contract.
            PeerError: the peer failed or was lost.
        """
        while True:
            if (found := self.mailbox.take(self.peer, kind, round)) is not None:
                check_exact(self.peer, found, dims)
                return found
            if self.done_with(round, until):
                return None
            self._refuse_if_lost()
            await self.mailbox.change()

    def done_with(self, round: int, until: int = 0) -> bool:
        """Whether the server has opened a later round (and one after `until`), wants a checkpoint, or has closed."""
        asked = self._asked is not None and self._asked.round >= round
        return self._closed or asked or self._newest > max(round, until)

    async def rounds(self, after: int = 0) -> AsyncIterator[int]:
        """The rounds that the server opens, newest first come: those that opened meanwhile are skipped.

        Between two rounds nothing is under way, so this is where a checkpoint is taken.

        Args:
            after: the last round that needs no work (a restored one).
        """
        while True:
            if self._asked is not None:
                asked, self._asked = self._asked, None
                self.on_save(asked)
            if self._newest > after:
                after = self._newest
                yield after
            elif self._closed:
                return
            else:
                self._refuse_if_lost()
                await self.mailbox.change()

    def deliver(self, item: Item) -> None:
        """Transport only: something has come from the peer. Breaches of contract raise at the reader."""
        match item:
            case Open(round=round) if self.last is not None and round > self.last:
                self.lose(ContractError(self.peer, "Open", "round", f"at most {self.last}, as agreed", str(round)))
            case Open(round=round):
                self._newest = max(self._newest, round)
                self.mailbox.ring()
            case Close():
                self._closed = True
                self.mailbox.ring()
            case Save():
                self._asked = item
                self.mailbox.ring()
            case _:
                self._accept(item)

    def lose(self, error: Exception) -> None:
        """Transport only: nothing more will come from the peer, and why."""
        self.mailbox.fail(self.peer, error)

    def _accept(self, message: Message) -> None:
        if self.kinds.get(type(message).__name__) is not type(message):
            expected = f"one of {', '.join(sorted(self.kinds))}"
            self.lose(ContractError(self.peer, type(message).__name__, "", expected, "an undeclared kind"))
            return
        try:
            check(self.peer, message, self.limits)
            check_finite(self.peer, message)
        except ContractError as broken:
            self.lose(broken)
            return
        Traffic.count(self.traffic.received, message)
        self.mailbox.put(self.peer, message)

    def _refuse_if_lost(self) -> None:
        if fault := self.mailbox.fault([self.peer]):
            raise fault


class Cohort(Mapping[str, Link]):
    """Links to several peers, read together.

    Args:
        links: by peer, in the roster's order.
        mailbox: the one that all these links file into.
        on_round: told of the beginning of every round.
        between: awaited after every round, when nothing is under way at the server, with its number.
        enough: whether there are to be no more rounds, although the half asks for them.
    """

    def __init__(
        self,
        links: Mapping[str, Link],
        mailbox: Mailbox,
        on_round: Callable[[int], None] = lambda _round: None,
        between: Callable[[int], Awaitable[None]] | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        self._links = dict(links)
        self._mailbox = mailbox
        self._on_round, self._between, self._enough = on_round, between, enough

    def __getitem__(self, party: str) -> Link:
        return self._links[party]

    def __iter__(self) -> Iterator[str]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)

    async def tell(self, what: Message | Mapping[str, Message]) -> None:
        """Sends one message to all, or to each party named its own.

        A party that is lost is passed over: the next harvest that needs it raises.
        """
        for party in self._links if isinstance(what, Message) else what:
            if self._mailbox.fault([party]) is None:
                await self._links[party].send(what if isinstance(what, Message) else what[party])

    async def rounds(self, last: int, after: int = 0) -> AsyncIterator[int]:
        """Opens the rounds `after + 1` to `last` one after the other, or as long as it is not enough, then closes."""
        for round in range(after + 1, last + 1):
            if self._enough():
                break
            self._on_round(round)
            for link in self._links.values():
                link.open(round)
            yield round
            if self._between is not None:
                await self._between(round)
        for link in self._links.values():
            link.close()

    async def collect(
        self,
        kind: type[M],
        round: int,
        quorum: Quorum,
        *,
        among: Collection[str] | None = None,
        stale: Callable[[M], bool] | None = None,
        **dims: int,
    ) -> Harvest[M]:
        """Waits for one message of a kind and round from every party, as long as the quorum says.

        Args:
            kind, round: of the messages.
            quorum: how long, and for whom.
            among: the parties that can answer; the others are missing. All if left out.
            stale: of several messages of one kind in a round, points out those whose time has passed.
            dims: the messages' dimensions.

        Raises:
            ContractError: a message has other dimensions, or a party broke the contract.
            PartyLost: fewer than `need` answers came within `limit` seconds, or can come at all.
        """
        asked = tuple(party for party in self._links if among is None or party in among)
        harvest = await _Gathering(self._mailbox, asked, kind, round, quorum, dims, stale).finish()
        others = tuple(party for party in self._links if party not in asked)
        return replace(harvest, missing=(*harvest.missing, *others)) if others else harvest

    async def arrivals(
        self, kind: type[M], *, after: int = 0, limit: float = math.inf, **dims: int
    ) -> AsyncIterator[tuple[str, M]]:
        """Messages of a kind from whoever sends next, fairly: nobody is served twice while another waits.

        Those of rounds up to `after`, and those that their senders gave up for a checkpoint, are dropped and
        counted as late.

        Raises:
            ContractError: a message has other dimensions, or a party broke the contract.
            PartyLost: nothing came from anybody for `limit` seconds, or nobody is left.
        """
        waiting = list(self._links)
        while True:
            news = ((p, self._mailbox.take_next(p, kind, max(after, self._links[p].given_up))) for p in waiting)
            found = next(((p, m) for p, m in news if m is not None), None)
            if found is None:
                self._refuse_faults(waiting)
                await self._change_within(limit, kind, waiting)
                continue
            party, message = found
            check_exact(party, message, dims)
            waiting.remove(party)
            waiting.append(party)
            yield party, message

    async def _change_within(self, limit: float, kind: type[Message], parties: list[str]) -> None:
        if not await self._mailbox.change(limit if math.isfinite(limit) else None):
            hint = "raise federation.timeouts.answer, or look at its log"
            raise PartyLost(parties[0], f"no {kind.__name__} within {limit:g} s, nor from any other", hint=hint)

    def _refuse_faults(self, parties: list[str]) -> None:
        """Raises what a party has done wrong; who is merely away is missed only when nobody is left."""
        faults = [fault for party in parties if (fault := self._mailbox.fault([party])) is not None]
        serious = [fault for fault in faults if not isinstance(fault, PartyAway)]
        if serious or len(faults) == len(parties):
            raise (serious or faults)[0]


class _Gathering(Generic[M]):
    """One harvest under way."""

    def __init__(
        self,
        mailbox: Mailbox,
        parties: tuple[str, ...],
        kind: type[M],
        round: int,
        quorum: Quorum,
        dims: Mapping[str, int],
        stale: Callable[[M], bool] | None,
    ) -> None:
        self._mailbox, self._parties, self._stale = mailbox, parties, stale
        self._kind, self._round, self._quorum, self._dims = kind, round, quorum, dims
        self._need = len(parties) if quorum.need is None else min(quorum.need, len(parties))
        self._answers: dict[str, M] = {}
        self._clock = asyncio.get_running_loop().time
        self._times: dict[str, float] = {}

    async def finish(self) -> Harvest[M]:
        begin = self._clock()
        enough_since: float | None = None
        while True:
            self._pick_up()
            if enough_since is None and len(self._answers) >= self._needed():
                enough_since = self._clock()
            silent = [party for party in self._parties if party not in self._answers]
            hopeful = [party for party in silent if self._mailbox.fault([party]) is None]
            if enough_since is not None:
                left = enough_since + self._quorum.grace - self._clock()
                if not hopeful or left <= 0:
                    return self._harvest(silent)
            else:
                self._give_up_if_hopeless(silent, hopeful, begin)
                left = begin + self._quorum.limit - self._clock()
            await self._mailbox.change(left)

    def _needed(self) -> int:
        """Nobody waits for a party that is excused, nor misses its answer."""
        excused = sum(self._mailbox.excused(party) for party in self._parties if party not in self._answers)
        return min(self._need, len(self._parties) - excused)

    def _pick_up(self) -> None:
        for party in self._parties:
            if party in self._answers:
                continue
            found = self._mailbox.take(party, self._kind, self._round, self._stale)
            if found is not None:
                check_exact(party, found, self._dims)
                self._answers[party] = found
                self._times[party] = self._clock()

    def _give_up_if_hopeless(self, silent: list[str], hopeful: list[str], begin: float) -> None:
        if len(self._answers) + len(hopeful) < self._needed():
            fault = self._mailbox.fault(silent)
            assert fault is not None  # a silent party without hope has a fault
            raise fault
        if self._clock() - begin >= self._quorum.limit:
            what = f"no {self._kind.__name__} for round {self._round} within {self._quorum.limit:g} s"
            others = f" (nor from {', '.join(hopeful[1:])})" if hopeful[1:] else ""
            hint = "raise federation.timeouts.answer, or lower federation.quorum.need to go on without it"
            raise PartyLost(hopeful[0], what + others, hint=hint)

    def _harvest(self, missing: list[str]) -> Harvest[M]:
        ordered = {party: self._answers[party] for party in self._parties if party in self._answers}
        if not self._times:
            return Harvest(ordered, tuple(missing))
        slowest = max(self._times, key=self._times.__getitem__)
        lag = self._times[slowest] - min(self._times.values())
        return Harvest(ordered, tuple(missing), slowest, lag)
