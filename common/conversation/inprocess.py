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

from colonnade.common.conversation.capacity import Bounded
from colonnade.common.conversation.control import Item, Statement
from colonnade.common.conversation.conversation import SERVER, Carrier, Cohort, Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.conversation.outbox import Outbox
from colonnade.common.errors import PartyAway
from colonnade.common.messaging.message import Kinds, Message, memory, snapshot
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
    on_round: Callable[[int], None] = lambda _round: None,
    between: Callable[[int], Awaitable[None]] | None = None,
    compress: Callable[[str], Callable[[Message], Message]] = lambda _party: lambda message: message,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[Cohort, dict[str, Link]]:
    """Connects a server and parties: returns the server's cohort, and every party's link to the server."""
    mailbox = mailbox or Mailbox()
    at_server: dict[str, Link] = {}
    at_party: dict[str, Link] = {}
    for party in parties:
        up = _Wire(at_server, at_party, party, partial(delay, party, SERVER), patient=True)
        down = _Wire(at_party, at_server, party, partial(delay, SERVER, party))
        at_server[party] = Link(party, kinds, limits, down, mailbox, compress=compress(party))
        at_party[party] = Link(SERVER, kinds, limits, up, outlet=up)
    return Cohort(at_server, mailbox, on_round, between, enough), at_party


class _Wire(Bounded, Carrier):
    """One direction between two links: items arrive in the order in which they were sent.

    Items for which the receiving link has no room are queued here; over gRPC they are queued at the sender. A patient
    sender waits while this is full; if too many are queued nevertheless, they were delayed when it saw room.
    """

    def __init__(
        self,
        links: dict[str, Link],
        senders: dict[str, Link],
        party: str,
        delay: Callable[[Item], float],
        *,
        patient: bool = False,
    ) -> None:
        super().__init__()
        self._patient = patient
        self._links, self._senders, self._party, self._delay = links, senders, party, delay
        self._busy_until = 0.0
        self._under_way = 0  # bytes that are due at once
        self._held: Outbox[Item] | None = None  # set from the first item that has to wait
        self._handing: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """True if the sender has to wait. Delayed items are in transit, and take no room."""
        held = 0 if self._held is None else self._held.bytes
        return self._under_way + held > self._links[self._party].most

    def __call__(self, item: Item) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(item, Statement):  # they travel beside the rounds, and take no time
            loop.call_soon(self._links[self._party].deliver, item)
            return
        delay, now = self._delay(item), loop.time()
        due = _size(item) if delay <= 0 and self._busy_until <= now + _AT_ONCE else 0
        self._under_way += due
        # The next float after the last one: timers with equal times would fire in any order.
        self._busy_until = max(math.nextafter(self._busy_until, math.inf), now + delay)
        loop.call_at(self._busy_until, self._arrive, _copied(item), due)

    def _arrive(self, item: Item, due: int) -> None:
        self._under_way -= due
        self._left.set()
        link = self._links[self._party]
        if not self._held and not link.full:
            link.deliver(item)
            return
        if self._held is None:
            self._held = Outbox(link.largest)
        self._held.put(item, item, _size(item))
        if self._held.hopeless and not self._patient:
            sender, size = self._senders[self._party], self._held.bytes
            self._held.clear()
            sender.lose(PartyAway(sender.peer, f"it does not read: {size} bytes wait for it"))
        elif self._handing is None:
            self._handing = asyncio.get_running_loop().create_task(self._deliver(link, self._held))

    async def _deliver(self, link: Link, held: Outbox[Item]) -> None:
        while held:
            await link.room()
            while held and not link.full:
                link.deliver(held.take())
            self._left.set()
        self._handing = None


def _size(item: Item) -> int:
    return memory(item) if isinstance(item, Message) else 64


def _copied(item: Item) -> Item:
    return snapshot(item) if isinstance(item, Message) else item
