"""The core abstraction: a conversation between a server side and party sides, each a sequential coroutine.

A protocol is a contract and two coroutines, `serve` at the server and `participate` at every party. Both use the
classes of this module, independently of the transport: one event loop on a virtual clock
(common/conversation/inprocess.py) or gRPC over mutual TLS (common/wire).

    async def serve(ctx, clients: Cohort):          async def participate(ctx, server: Link):
        async for t in clients.rounds(n):               async for t in server.rounds():
            h = await clients.collect(Embedding, t, q)      await server.send(Embedding(t, ...))
            await clients.broadcast({k: Update(t, ...)})    update = await server.recv(Update, t)

The server opens rounds; a party follows the newest open one, so that a straggler always catches up. A straggler policy
is a `Quorum` (common/conversation/responses.py): three numbers. Messages of a past round are dropped and counted. Every
fault of a peer raises at its receiver.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Protocol

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.capacity import AHEAD, Capacity, Unlimited, bound
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.conversation.parcels import Close, Item, Open, Relayed, Save, Statement
from colonnade.common.conversation.relay import Relay
from colonnade.common.conversation.responses import ResponseCollector, Responses
from colonnade.common.conversation.stream import MessageWatch, Traffic
from colonnade.common.errors import ContractError, FloodError, PartyAway, PartyLost, TrainingDiverged
from colonnade.common.messaging.message import (
    Kinds,
    M,
    Message,
    check,
    check_exact,
    check_finite,
    check_kind,
    largest_bytes,
    one_of,
)

SERVER = "server"


class Carrier(Protocol):
    """Transports items from a link to the other end, in order, without waiting."""

    def __call__(self, item: Item, /) -> None:
        """Sends one item. It is encoded or copied before this returns."""


class Link(Capacity):
    """One end of a conversation between two members. Made by a transport, used by a protocol side.

    Args:
        kinds: the messages that the protocol declares, by name; all others are refused.
        limits: maximum size of every dimension, by name.
        carry: sends an item over the transport.
        compress: applied to a message before it is sent.
        mailbox: stores messages from this peer; links of one cohort share it.
        outlet: the transport's; sending waits until it has room.

    Attributes:
        last: the last agreed round; None if unknown.
        closed: True if the server has no more rounds.
        known: the newest round known to both ends; messages of rounds far ahead of it are refused.
        on_round: called with the number of a round when this side has finished it.
        on_save: called when a checkpoint was requested and this side has finished its round.
        on_statement: called with every statement of a party.
        on_taken: called with every message that `recv` returns.
        keyed: True once keys were agreed on: a peer that reconnects has none of them.
        given_up: the round of the last checkpoint requested here: the other end abandons exchanges of rounds up to it.
    """

    def __init__(
        self,
        peer: str,
        kinds: Kinds,
        limits: Mapping[str, int],
        carry: Carrier,
        mailbox: Mailbox | None = None,
        *,
        compress: Callable[[Message], Message] = lambda message: message,
        outlet: Capacity | None = None,
    ) -> None:
        self.peer, self.kinds, self.limits = peer, kinds, limits
        self.traffic, self.mailbox = Traffic(), mailbox or Mailbox()
        self.on_round: Callable[[int], None] = lambda _round: None
        self.on_save: Callable[[Save], None] = lambda _save: None
        self.on_statement: Callable[[Statement], None] = lambda _statement: None
        self.on_taken: Callable[[Message], None] = lambda _message: None
        self.keyed, self.given_up, self.known = False, 0, 0
        self.watch: MessageWatch | None = None
        self.last: int | None = None
        self._carry, self._compress, self._outlet = carry, compress, Unlimited() if outlet is None else outlet
        self.newest, self._opened, self.closed = 0, 0, False
        self._asked: Save | None = None

    async def send(self, message: Message) -> None:
        """Sends one message, once there is room for it. It may be changed or reused afterwards.

        Raises:
            ContractError: our own side breaks its contract.
            TrainingDiverged: a number is not finite.
            PeerError: the peer is known to be gone.
        """
        self._refuse_if_lost()
        if self.kinds.get(type(message).__name__) is not type(message):
            got = "a kind that is not in CONTRACT.messages"
            raise ContractError("this side", type(message).__name__, "", one_of(self.kinds), got)
        check("this side", message, self.limits)
        if self.watch is not None:
            self.watch.sent(self.peer, message)
        if self._outlet.full:
            await self._outlet.room()
            self._refuse_if_lost()
        message = self._compress(message)
        self.known = max(self.known, message.round)
        Traffic.count(self.traffic.sent, message)
        self._carry(message)

    def open(self, round: int) -> None:
        """Server only: opens a round at the other end."""
        self.known = max(self.known, round)
        self._opened += 1
        self._carry(Open(round))

    def close(self) -> None:
        """Server only: declares that there are no more rounds."""
        self.closed = True
        self._carry(Close())

    def request_save(self, save: Save) -> None:
        """Server only: requests a checkpoint from the other end."""
        self.given_up = save.round
        self._carry(save)

    @property
    def lost(self) -> bool:
        """True if the peer is gone, or at fault."""
        return self.mailbox.fault([self.peer]) is not None

    def pass_on(self, relayed: Relayed) -> None:
        """Server only: passes on what parties state, unless the peer is lost."""
        if not self.lost:
            self._carry(relayed)

    def renew(self, carry: Carrier) -> None:
        """Transport only: replaces the connection of a peer that is back; its earlier messages are discarded."""
        self._carry = carry
        self.mailbox.welcome_back(self.peer)

    async def recv(self, kind: type[M], round: int, *, until: int = 0, **dims: int) -> M | None:
        """Waits for a message of a kind and round with the given dimensions.

        Returns None if the server has finished the round without sending it: this side is late and continues with the
        newest round. With `until`, the wait continues while the server opens rounds up to that one; a requested
        checkpoint still ends it.

        Raises:
            ContractError: the message has other dimensions, or an earlier one broke the contract.
            PeerError: the peer failed or was lost.
        """
        return await self.recv_one({kind: dims}, round, until=until)

    async def recv_one(self, kinds: Mapping[type[M], Mapping[str, int]], round: int, *, until: int = 0) -> M | None:
        """Waits for a message of one of several kinds, each with its dimensions; otherwise as `recv`."""
        for kind in kinds:
            self.mailbox.strays.ask(self.peer, kind.__name__, round)
        while True:
            for kind, dims in kinds.items():
                if (found := self.mailbox.take(self.peer, kind, round)) is not None:
                    check_exact(self.peer, found, dims)
                    self.on_taken(found)
                    return found
            self._refuse_if_broken()  # else a message dropped since would count as late, and a checkpoint would lack it
            if self.done_with(round, until):
                return None
            self._refuse_if_lost()
            await self.mailbox.change()

    def done_with(self, round: int, until: int = 0) -> bool:
        """True if the server has opened a later round (and one after `until`), requests a checkpoint, or has closed."""
        asked = self._asked is not None and self._asked.round >= round
        return self.closed or asked or self.newest > max(round, until)

    async def rounds(self, after: int = 0) -> AsyncIterator[int]:
        """The rounds that the server opens after `after`: yields the newest open one, and skips older ones.

        Between two rounds no exchange is in progress, so checkpoints are taken there.
        """
        while True:
            if self._asked is not None:
                self._refuse_if_broken()
                asked, self._asked = self._asked, None
                self.on_save(asked)
            if self.newest > after:
                after = self.newest
                yield after
                self.on_round(after)
            elif self.closed:
                return
            else:
                self._refuse_if_lost()
                self.mailbox.make_room(self.peer, after + 1)
                await self.mailbox.change()

    def deliver(self, item: Item) -> None:
        """Transport only: accepts an item from the peer. Breaches of contract raise at the reader."""
        match item:
            case Open(round=round) if self.last is not None and round > self.last:
                self.lose(ContractError(self.peer, "Open", "round", f"at most {self.last}, as agreed", str(round)))
            case Open(round=round):
                self.newest, self.known = max(self.newest, round), max(self.known, round)
                self._opened += 1
                self.mailbox.ring()
            case Close():
                self.closed = True
                self.mailbox.ring()
            case Save():
                self._asked = item
                self.mailbox.ring()
            case Statement():
                self.on_statement(item)
            case Relayed():
                pass  # a party's transcript has taken them
            case _:
                self._accept(item)

    @cached_property
    def largest(self) -> int:
        """Bytes of the largest message that the contract allows."""
        return max((largest_bytes(kind, self.limits) for kind in self.kinds.values()), default=0)

    @cached_property
    def most(self) -> int:
        """Bytes that may be unread."""
        return bound(self.largest)

    @property
    def full(self) -> bool:
        """Transport only: True if no more items are accepted until unread ones are read."""
        return self.mailbox.held(self.peer) > self.most

    async def room(self) -> None:
        """Transport only: waits until enough items are read."""
        await self.mailbox.room(self.peer, self.most)

    def expects(self, kind: str, round: int) -> bool:
        """Transport only: True if a message of this round is acceptable. If not, the peer has broken its contract.

        Raises:
            FloodError: the peer floods us with messages that no round takes; its connection must not be read any more.
        """
        self._refuse_flood(kind, round)
        newest = max(self.known, self.mailbox.asked(self.peer)) + AHEAD
        if round > newest:
            self.lose(ContractError(self.peer, kind, "round", f"at most {newest}", str(round)))
        elif (fault := self.mailbox.fault([self.peer])) is None or isinstance(fault, PartyLost):
            return True
        self.mailbox.strays.drop(self.peer, kind)  # the peer is at fault and is not read any more
        return False

    def lose(self, error: Exception) -> None:
        """Transport only: marks the peer as lost, with the reason."""
        self.mailbox.fail(self.peer, error)

    def _refuse_flood(self, kind: str, round: int) -> None:
        if (declared := self.kinds.get(kind)) is None:
            return
        unread, server = self.mailbox.unread_of(self.peer, declared), self.peer == SERVER
        found = self.mailbox.strays.excess(self.peer, kind, round, self._opened, unread, server=server)
        if found is not None:
            came, most = found
            expected = f"at most {most} that are late, repeated or unasked, in {self._opened} rounds"
            raise FloodError(self.peer, kind, "", expected, f"{came}")

    def _accept(self, message: Message) -> None:
        try:
            check_kind(self.peer, message, self.kinds, server=self.peer == SERVER)
            if not self.expects(type(message).__name__, message.round):
                return
            check(self.peer, message, self.limits)
            if self.watch is None:
                check_finite(self.peer, message)
            else:
                self.watch.received(self.peer, message)
        except (ContractError, TrainingDiverged) as broken:
            self.lose(broken)
            return
        Traffic.count(self.traffic.received, message)
        self.mailbox.put(self.peer, message)

    def _refuse_if_broken(self) -> None:
        if (fault := self.mailbox.fault([self.peer])) and not isinstance(fault, PartyLost):
            raise fault

    def _refuse_if_lost(self) -> None:
        if fault := self.mailbox.fault([self.peer]):
            raise fault


class Cohort(Mapping[str, Link]):
    """Links to several peers, read together.

    Args:
        links: by peer, in the roster's order.
        mailbox: shared by all these links.
        on_round: called at the beginning of every round.
        between: awaited with its number after every round, when the server has no exchange in progress.
        enough: returns True if the rounds are to end early.

    Attributes:
        relay: relays the parties' statements.
    """

    def __init__(
        self,
        links: Mapping[str, Link],
        mailbox: Mailbox,
        on_round: Callable[[int], None] = lambda _round: None,
        between: Callable[[int], Awaitable[None]] | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        self._links, self._mailbox = dict(links), mailbox
        self._on_round, self._between, self._enough = on_round, between, enough
        self.relay = Relay(self._links)
        for party, link in self._links.items():
            link.on_statement = partial(self.relay.take, party)

    def __getitem__(self, party: str) -> Link:
        return self._links[party]

    def __iter__(self) -> Iterator[str]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)

    async def broadcast(self, what: Message | Mapping[str, Message]) -> None:
        """Sends one message to all parties, or to each its own; skips a lost one, which the next collection reports."""
        for party in self._links if isinstance(what, Message) else what:
            if self._mailbox.fault([party]) is None:
                await self._links[party].send(what if isinstance(what, Message) else what[party])

    async def rounds(self, last: int, after: int = 0) -> AsyncIterator[int]:
        """Opens the rounds `after + 1` to `last` in order, or until `enough` is true, then closes."""
        for round in range(after + 1, last + 1):
            if self._enough():
                break
            self._on_round(round)
            self.relay.pass_on()
            for link in self._links.values():
                link.open(round)
            yield round
            if self._between is not None:
                await self._between(round)
        self.relay.pass_on()
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
    ) -> Responses[M]:
        """Waits for one message of a kind and round from every party, within the limits of the quorum.

        Args:
            among: the parties that can respond; the others are missing. All if left out.
            stale: selects the outdated ones of several messages of one kind in a round.

        Raises:
            ContractError: a message has other dimensions, or a party broke the contract.
            PartyLost: fewer than `need` responses arrived within `limit` seconds, or can arrive at all.
        """
        asked = tuple(party for party in self._links if among is None or party in among)
        responses = await ResponseCollector(
            self._mailbox, asked, kind, round, quorum=quorum, dims=dims, stale=stale
        ).finish()
        others = tuple(party for party in self._links if party not in asked)
        return replace(responses, missing=(*responses.missing, *others)) if others else responses

    async def arrivals(
        self,
        kind: type[M],
        *,
        after: int = 0,
        limit: float = math.inf,
        ready: Callable[[str], bool] = lambda _party: True,
        **dims: int,
    ) -> AsyncIterator[tuple[str, M]]:
        """Messages of a kind from any party, in fair order: no party is served twice while another waits.

        Messages of rounds up to `after`, and messages that their senders gave up for a checkpoint, are dropped and
        counted as late; messages of parties that are not `ready` are left for later.

        Raises:
            ContractError: a message has other dimensions, or a party broke the contract.
            PartyLost: no message arrived for `limit` seconds, or no party is left.
        """
        waiting = list(self._links)
        while True:
            able = filter(ready, waiting)
            news = ((p, self._mailbox.take_next(p, kind, max(after, self._links[p].given_up))) for p in able)
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
        now = asyncio.get_running_loop().time()
        limit = self._mailbox.deadline(parties, now, limit) - now
        if not await self._mailbox.change(limit if math.isfinite(limit) else None):
            hint = f"{self._mailbox.remedy(parties[0])}, or look at its log"
            raise PartyLost(parties[0], f"no {kind.__name__} within {limit:g} s, nor from any other", hint=hint)

    def _refuse_faults(self, parties: list[str]) -> None:
        """Raises a party's fault; a party that is merely away raises only when no party is left."""
        faults = [fault for party in parties if (fault := self._mailbox.fault([party])) is not None]
        serious = [fault for fault in faults if not isinstance(fault, PartyAway)]
        if serious or len(faults) == len(parties):
            raise (serious or faults)[0]
