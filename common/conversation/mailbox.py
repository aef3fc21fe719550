"""Unread messages by peer and kind, and the peers that are lost."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from colonnade.common.errors import PartyLost
from colonnade.common.messaging.message import M, Message, memory
from colonnade.common.run.phases import WAITING, Phases

PREPARING = 20
"""How many times as long a peer may take for a message that waits for its table."""


class Mailbox:
    """Unread messages of several peers, with a notification on every change.

    Synchronous protocols read a kind and a round and drop older rounds (late messages); asynchronous ones read the next
    message. Both read the same queues.

    Args:
        on_late: called with every message dropped because its round had passed: (peer, message).
        phases: the reader's; records its waiting time.
        on_fault: called with the first error of every peer: it counts at once, whether or not it is waited for.

    Attributes:
        late: number of messages dropped, by peer.
        strays: the same by peer and kind, and how many there may be.
    """

    def __init__(
        self,
        on_late: Callable[[str, Message], None] = lambda _peer, _message: None,
        phases: Phases | None = None,
        on_fault: Callable[[str, Exception], None] = lambda _peer, _error: None,
    ) -> None:
        self.late: Counter[str] = Counter()
        self.strays = Strays()
        self._on_late, self._on_fault, self._phases = on_late, on_fault, phases or Phases()
        self._queues: dict[str, dict[type[Message], deque[Message]]] = defaultdict(lambda: defaultdict(deque))
        self._came: set[str] = set()  # peers of whom there was a message
        self._prepared: dict[str, float] = {}  # peers that said so; when a message came after it, else infinite
        self._faults: dict[str, Exception] = {}
        self._excused: set[str] = set()
        self._bell: set[asyncio.Future[bool]] = set()
        self._held: Counter[str] = Counter()  # bytes unread
        self._asked: dict[str, int] = {}  # the newest round requested
        self._kept_out: Counter[str] = Counter()  # producers waiting for room, by peer
        self._relieved = asyncio.Event()
        self._abandoned = False

    def put(self, peer: str, message: Message) -> None:
        """Stores a message received from a peer."""
        self._came.add(peer)
        if self._prepared.get(peer) == math.inf:
            self._prepared[peer] = asyncio.get_running_loop().time()
        self._queues[peer][type(message)].append(message)
        self._held[peer] += memory(message)
        if self._abandoned:
            self._discard(peer)
        else:
            self.ring()

    def prepare(self, peer: str) -> bool:
        """Notes that a peer's next message waits for its table. False if it has said so before."""
        if peer in self._prepared:
            return False
        self._prepared[peer] = math.inf
        self.ring()
        return True

    def deadline(self, peers: Iterable[str], begin: float, limit: float) -> float:
        """The deadline for these peers' messages, requested at `begin`: `limit` seconds from then on, or from the end
        of a peer's preparation, which may take PREPARING times as long.
        """
        ends = [self._prepared.get(peer, begin) for peer in peers]
        if math.inf in ends:
            return begin + PREPARING * limit
        return max([begin, *ends]) + limit

    def remedy(self, peer: str) -> str:
        """The setting to raise if a connected peer takes too long."""
        said = "raise federation.timeouts.answer"
        if self._prepared.get(peer) == math.inf:
            return f"it still prepares its table, for which it has {PREPARING} times as long: {said}"
        if peer in self._came:
            return said
        return f"its first message may wait for its table to be encoded, and written with `store: disk`: {said}"

    def held(self, peer: str) -> int:
        """Bytes of a peer's messages that are unread."""
        return self._held[peer]

    def asked(self, peer: str) -> int:
        """The newest round requested of a peer."""
        return self._asked.get(peer, 0)

    async def room(self, peer: str, most: int) -> None:
        """Waits until at most `most` bytes of a peer's messages are unread."""
        self._kept_out[peer] += 1
        self.ring()  # a reader that waits for a later message may drop the unread ones
        try:
            while self._held[peer] > most:
                self._relieved.clear()
                await self._relieved.wait()
        finally:
            self._kept_out[peer] -= 1

    def abandon(self) -> None:
        """Discards all messages, present and future: there is no reader any more. Late ones still count as late."""
        self._abandoned = True
        for peer in list(self._queues):
            self._discard(peer)

    def fail(self, peer: str, error: Exception) -> None:
        """Records that a peer is lost or at fault. The first error counts: later ones are its consequences."""
        if peer not in self._faults:
            self._faults[peer] = error
            self._on_fault(peer, error)
        self.ring()

    def excuse(self, peer: str) -> None:
        """Marks a peer as not waited for until it reconnects."""
        self._excused.add(peer)
        self.ring()

    def excused(self, peer: str) -> bool:
        """True if a peer is excused."""
        return peer in self._excused

    def welcome_back(self, peer: str) -> None:
        """Clears a peer's fault, excuse and earlier messages."""
        self._faults.pop(peer, None)
        self._excused.discard(peer)
        self._forget(peer)

    def fault(self, peers: Iterable[str]) -> Exception | None:
        """The fault among these peers that counts, or None: a broken contract before a loss, else the first."""
        faults = [self._faults[peer] for peer in peers if peer in self._faults]
        return min(faults, key=lambda fault: isinstance(fault, PartyLost), default=None)

    def take(
        self, peer: str, kind: type[M], round: int | None = None, stale: Callable[[M], bool] | None = None
    ) -> M | None:
        """The oldest message of a kind (of a round, when one is named) from a peer, or None.

        Messages of earlier rounds, and those of this round that `stale` selects, are dropped and reported as late;
        those of later rounds stay.
        """
        queue = self._queues[peer][kind]
        if round is not None and round > self._asked.get(peer, 0):
            self._asked[peer] = round
        while queue and round is not None and self._passed(queue[0], round, stale):
            self._drop(peer, queue)
        if not queue or (round is not None and queue[0].round > round):
            self.make_room(peer, round or 0)
            return None
        return self._pop(peer, queue)  # type: ignore[return-value]  # the queue of `kind` holds this type alone

    def take_next(self, peer: str, kind: type[M], after: int) -> M | None:
        """The oldest message of a kind of any round beyond `after` from a peer, or None; earlier ones drop as late."""
        queue = self._queues[peer][kind]
        self.strays.pass_to(peer, kind.__name__, after + 1)
        while queue and queue[0].round <= after:
            self._drop(peer, queue)
        if not queue:
            self.make_room(peer, after + 1)
            return None
        return self._pop(peer, queue)  # type: ignore[return-value]  # as above

    def make_room(self, peer: str, round: int) -> None:
        """Drops messages of earlier rounds if more of this peer wait for room: the requested one may be among them."""
        if self._kept_out[peer]:
            self._drop_before(peer, round)

    def unread(self, peer: str) -> int:
        """Number of a peer's unread messages. May be called from any thread."""
        return sum(len(queue) for queue in list(self._queues.get(peer, {}).values()))

    def unread_of(self, peer: str, kind: type[Message]) -> int:
        """Number of a peer's unread messages of one kind."""
        return len(self._queues[peer][kind])

    def _discard(self, peer: str) -> None:
        self._drop_before(peer, self.asked(peer))
        self._forget(peer)

    def _drop_before(self, peer: str, round: int) -> None:
        for queue in self._queues[peer].values():
            while queue and queue[0].round < round:
                self._drop(peer, queue)

    def _drop(self, peer: str, queue: deque[Message]) -> None:
        message = self._pop(peer, queue)
        self.late[peer] += 1
        self.strays.drop(peer, type(message).__name__)
        self._on_late(peer, message)

    def _pop(self, peer: str, queue: deque[Message]) -> Message:
        message = queue.popleft()
        self._held[peer] -= memory(message)
        self._relieved.set()
        return message

    def _forget(self, peer: str) -> None:
        self._queues.pop(peer, None)
        self._held.pop(peer, None)
        self._relieved.set()

    @staticmethod
    def _passed(message: Message, round: int, stale: Callable[[Any], bool] | None) -> bool:
        return message.round < round or (message.round == round and stale is not None and stale(message))

    def ring(self) -> None:
        """Wakes every waiter."""
        for waiter in self._bell:
            _answer(waiter, True)
        self._bell.clear()

    async def change(self, timeout: float | None = None) -> bool:
        """Waits for a change. False if `timeout` seconds pass first."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._bell.add(waiter)
        alarm = None if timeout is None else loop.call_later(timeout, _answer, waiter, False)
        try:
            with self._phases.aside(WAITING):
                return await waiter
        finally:
            self._bell.discard(waiter)
            if alarm is not None:
                alarm.cancel()


def _answer(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)


_SPARE = 64  # messages of a kind that a session always allows
_OF_SERVER = 64  # minimum per round: a server sends a party some kinds once for each other party


class Strays:
    """Counts by sender and kind, in one session."""

    def __init__(self) -> None:
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._begun: dict[tuple[str, str], int] = {}  # rounds before it are over for this kind
        self._asked: dict[tuple[str, str], tuple[int, int]] = {}  # newest round, and questions in it
        self._owed: Counter[str] = Counter()  # maximum questions in a round, over all peers

    def ask(self, peer: str, kind: str, round: int) -> None:
        """Counts a request to a peer for one message of this kind and round."""
        before, count = self._asked.get((peer, kind), (round, 0))
        count = count + 1 if before == round else 1
        self._asked[peer, kind] = round, count
        self._owed[kind] = max(self._owed[kind], count)
        self.pass_to(peer, kind, round)

    def pass_to(self, peer: str, kind: str, round: int) -> None:
        """Notes that messages of this kind and of rounds before this one will be dropped."""
        self._begun[peer, kind] = max(self._begun.get((peer, kind), 0), round)

    def drop(self, peer: str, kind: str) -> None:
        """Counts a message that was dropped unread."""
        self._dropped[peer, kind] += 1

    def excess(
        self, peer: str, kind: str, round: int, opened: int, unread: int, *, server: bool
    ) -> tuple[int, int] | None:
        """(stray messages, maximum) if the next message, not decoded yet, makes them too many; else None.

        Args:
            round: the next message's.
            opened: number of rounds opened so far.
            unread: number of unread messages of this kind; they are of older rounds if the next message is.
            server: True if the peer is the server.
        """
        came = self._dropped[peer, kind]
        if round < self._begun.get((peer, kind), 0):
            came += unread + 1
        most = _SPARE + max(self._owed[kind], _OF_SERVER if server else 1) * (opened + 1)
        return (came, most) if came > most else None
