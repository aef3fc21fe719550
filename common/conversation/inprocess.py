"""The conversation inside one event loop, on a virtual clock, for most tests.

`VirtualLoop` never sleeps: when nothing is ready it advances its clock to the next timer. An hour of stragglers takes
milliseconds, and events always have the same order.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from colonnade.common.conversation.capacity import Bounded, Capacity, Unlimited, bound
from colonnade.common.conversation.control import Item, Statement
from colonnade.common.conversation.conversation import SERVER, Carrier, Cohort, Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.conversation.outbox import Outbox
from colonnade.common.errors import PartyAway
from colonnade.common.messaging.message import Kinds, Message, largest_bytes, memory, snapshot
from colonnade.common.run.own_loop import run_on_own_loop

_T = TypeVar("_T")
_AT_ONCE = 1e-6  # seconds

# Delay of a party's message: (from, to, item) -> seconds.
Delay = Callable[[str, str, Item], float]


class _NoWaitSelector(selectors.SelectSelector):
    """Advances the loop's clock by the timeout instead of waiting."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every coroutine waits for another: nothing is ready and no timer is set")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock, in seconds from `begin`, jumps from timer to timer."""

    def __init__(self, begin: float = 0.0) -> None:
        self._virtual = _NoWaitSelector(begin)
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual.now

    def run_in_executor(self, _executor: Any, func: Callable[..., _T], *args: Any) -> asyncio.Future[_T]:  # type: ignore[override]
        """Runs at once what members leave to a thread: the clock does not wait for threads."""
        done: asyncio.Future[_T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as failed:  # noqa: BLE001  # whoever awaits it gets it
            done.set_exception(failed)
        return done


def run_virtual(
    main: Coroutine[Any, Any, _T], begin: float = 0.0, loop: Callable[[float], VirtualLoop] = VirtualLoop
) -> _T:
    """Runs a coroutine to its end on a virtual clock of its own, which starts at `begin` seconds.

    An interrupt of the caller cancels the coroutine and raises KeyboardInterrupt.
    """
    return run_on_own_loop(main, partial(loop, begin))


def connect(
    parties: list[str],
    kinds: Kinds,
    limits: Mapping[str, int],
    delay: Delay = lambda _from, _to, _item: 0.0,
    mailbox: Mailbox | None = None,
    *,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[Cohort, dict[str, Link]]:
    """Connects a server and parties: returns the server's cohort, and every party's link to the server."""
    cohort, ends = meet(parties, kinds, limits, delay, mailbox, enough=enough)
    links = {party: Link(SERVER, kinds, limits, end.post, outlet=end.outlet) for party, end in ends.items()}
    for party, link in links.items():
        ends[party].attach(partial(_deliver, link), link.lose, link)
    return cohort, links


def meet(
    parties: list[str],
    kinds: Kinds,
    limits: Mapping[str, int],
    delay: Delay = lambda _from, _to, _item: 0.0,
    mailbox: Mailbox | None = None,
    *,
    on_round: Callable[[int], None] = lambda _round: None,
    between: Callable[[int], Awaitable[None]] | None = None,
    compress: Callable[[str], Callable[[Message], Message]] = lambda _party: lambda message: message,
    enough: Callable[[], bool] = lambda: False,
    outward: Callable[[str, Carrier], Carrier] = lambda _party, carry: carry,
) -> tuple[Cohort, dict[str, MemoryConnection]]:
    """Connects a server and parties: returns the server's cohort, and every party's end of its connection.

    Args:
        outward: wraps what carries the server's items to a party.
    """
    mailbox = mailbox or Mailbox()
    links: dict[str, Link] = {}
    ends: dict[str, MemoryConnection] = {}
    largest = max((largest_bytes(kind, limits) for kind in kinds.values()), default=0)
    for party in parties:
        up, down = partial(delay, party, SERVER), partial(delay, SERVER, party)
        ours, ends[party] = pair(party, largest, up, down)
        link = Link(party, kinds, limits, outward(party, ours.post), mailbox, compress=compress(party))
        ours.attach(partial(_deliver, link), link.lose, link)
        links[party] = link
    return Cohort(links, mailbox, on_round, between, enough), ends


def pair(
    party: str, largest: int, up: Callable[[Item], float], down: Callable[[Item], float]
) -> tuple[MemoryConnection, MemoryConnection]:
    """A connection: the server's end, and the party's.

    Args:
        largest: bytes of the largest message.
        up: seconds that an item of the party takes; `down` one of the server.
    """
    at_server, at_party = MemoryConnection(party, largest, down), MemoryConnection(SERVER, largest, up, patient=True)
    at_server.other, at_party.other = at_party, at_server
    return at_server, at_party


class MemoryConnection(Bounded):
    """One end of a connection within an event loop: `post` and `attach` are those of common/wire/connection.py.

    Items arrive in the order in which they were sent. Those for which the receiver has no room are queued here; over
    gRPC they are queued at the sender. A patient sender waits while this is full; if too many are queued nevertheless,
    they were delayed when it saw room.

    Args:
        largest: bytes of the largest message.
        delay: seconds that an item takes to the other end.

    Attributes:
        peer: the other end's name, for errors.
        other: the other end.
    """

    other: MemoryConnection

    def __init__(self, peer: str, largest: int, delay: Callable[[Item], float], *, patient: bool = False) -> None:
        super().__init__()
        self.peer, self._largest, self._most, self._delay, self._patient = peer, largest, bound(largest), delay, patient
        self._receive: Callable[[Item], None] = lambda _item: None
        self._lost: Callable[[Exception], None] = lambda _loss: None
        self._inlet: Capacity = Unlimited()
        self._busy_until = 0.0
        self._under_way = 0  # bytes that are due at once
        self._held: Outbox[Item] | None = None  # set from the first item that has to wait
        self._handing: asyncio.Task[None] | None = None

    def attach(
        self, receive: Callable[[Item], None], lost: Callable[[Exception], None], inlet: Capacity | None = None
    ) -> None:
        """Sets the receiver of items, the callback for a peer that does not read, and the signal of free room."""
        self._receive, self._lost, self._inlet = receive, lost, inlet or Unlimited()

    @property
    def outlet(self) -> Capacity:
        """Capacity for what is posted here."""
        return self

    @property
    def full(self) -> bool:
        """True if the sender has to wait. Delayed items are in transit, and take no room."""
        held = 0 if self._held is None else self._held.bytes
        return self._under_way + held > self._most

    def post(self, item: Item) -> None:
        """Sends an item; a message is copied before this returns."""
        loop = asyncio.get_running_loop()
        if isinstance(item, Statement):  # they travel beside the rounds, and take no time
            loop.call_soon(self._hand, item)
            return
        delay, now = self._delay(item), loop.time()
        due = _size(item) if delay <= 0 and self._busy_until <= now + _AT_ONCE else 0
        self._under_way += due
        # The next float after the last one: timers with equal times would fire in any order.
        self._busy_until = max(math.nextafter(self._busy_until, math.inf), now + delay)
        loop.call_at(self._busy_until, self._arrive, _copied(item), due)

    def _hand(self, item: Item) -> None:
        self.other._receive(item)

    def _arrive(self, item: Item, due: int) -> None:
        self._under_way -= due
        self._left.set()
        if not self._held and not self.other._inlet.full:
            self._hand(item)
            return
        if self._held is None:
            self._held = Outbox(self._largest)
        self._held.put(item, item, _size(item))
        if self._held.hopeless and not self._patient:
            size = self._held.bytes
            self._held.clear()
            self._lost(PartyAway(self.peer, f"it does not read: {size} bytes wait for it"))
        elif self._handing is None:
            self._handing = asyncio.get_running_loop().create_task(self._deliver(self._held))

    async def _deliver(self, held: Outbox[Item]) -> None:
        while held:
            await self.other._inlet.room()
            while held and not self.other._inlet.full:
                self._hand(held.take())
            self._left.set()
        self._handing = None


def _deliver(link: Link, item: Item) -> None:
    link.deliver(item)


def _size(item: Item) -> int:
    return memory(item) if isinstance(item, Message) else 64


def _copied(item: Item) -> Item:
    return snapshot(item) if isinstance(item, Message) else item
