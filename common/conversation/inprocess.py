"""The conversation inside one event loop, on a virtual clock, for most tests.

`VirtualLoop` never sleeps: when nothing is ready it advances its clock to the next timer. An hour of stragglers takes
milliseconds, and events always have the same order.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from colonnade.common.conversation.capacity import Bounded, Capacity, Outbox, Unlimited, bound
from colonnade.common.conversation.conversation import SERVER, Cohort, Link
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.conversation.parcels import Begin, Hello, Item, Parcel, Relayed, Statement
from colonnade.common.conversation.stream import WireBytes
from colonnade.common.errors import ContractError, PartyAway
from colonnade.common.messaging.message import Kinds, Message, largest_bytes, memory, snapshot
from colonnade.common.run.event_loop import run_on_own_loop

_T = TypeVar("_T")
_AT_ONCE = 1e-6  # seconds

# Delay of an item: (from, to, item) -> seconds.
Delay = Callable[[str, str, Item], float]
Carry = Callable[[Any], None]


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
        """Runs at once what members pass to a thread: the clock does not wait for threads."""
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
    """Connects links without membership: returns the server's cohort, and every party's link to the server."""
    mailbox = mailbox or Mailbox()
    ours: dict[str, Link] = {}
    theirs: dict[str, Link] = {}
    largest = max((largest_bytes(kind, limits) for kind in kinds.values()), default=0)
    for party in parties:
        at_server, at_party = pair(party, largest, delay)
        ours[party] = Link(party, kinds, limits, at_server.post, mailbox)
        theirs[party] = Link(SERVER, kinds, limits, at_party.post, outlet=at_party.outlet)
        for end, link in ((at_server, ours[party]), (at_party, theirs[party])):
            end.attach(partial(_deliver, link), link.lose, link)
    return Cohort(ours, mailbox, enough=enough), theirs


def pair(
    party: str, largest: int, delay: Delay, around: Callable[[str, str, Carry], Carry] = lambda _from, _to, carry: carry
) -> tuple[MemoryConnection, MemoryConnection]:
    """A connection: the server's end, and the party's.

    Args:
        largest: bytes of the largest message.
        around: wraps what carries parcels: (from, to, carry).
    """
    at_server = MemoryConnection(party, largest, partial(delay, SERVER, party), around=partial(around, SERVER, party))
    at_party = MemoryConnection(
        SERVER, largest, partial(delay, party, SERVER), patient=True, around=partial(around, party, SERVER)
    )
    at_server.other, at_party.other = at_party, at_server
    return at_server, at_party


class MemoryConnection(Bounded):
    """One end of a stream within an event loop; its parcels are copied, and not encoded.

    Parcels arrive in the order in which they were sent. Those for which the receiver has no room are queued here; over
    gRPC they are queued at the sender. A patient sender waits while this is full; delayed items can overfill it.

    Args:
        largest: bytes of the largest message.
        delay: seconds that an item takes to the other end; 0 for parcels outside a session.
        around: wraps what carries parcels.
    """

    other: MemoryConnection
    unsent = 0

    def __init__(
        self,
        peer: str,
        largest: int,
        delay: Callable[[Item], float],
        *,
        patient: bool = False,
        around: Callable[[Carry], Carry] = lambda carry: carry,
    ) -> None:
        super().__init__()
        self.peer, self.address, self.session, self.done = peer, "", 0, asyncio.Event()
        self._largest, self._most, self._delay, self._patient = largest, bound(largest), delay, patient
        self._carry = around(self._send)
        self._early: asyncio.Queue[Parcel] = asyncio.Queue()
        self._receive: Callable[[Parcel], None] = self._early.put_nowait
        self._lost: Callable[[Exception], None] = lambda _loss: None
        self._inlet: Capacity = Unlimited()
        self._busy_until = -math.inf
        self._under_way = 0  # bytes that are due at once
        self._held: Outbox[tuple[Parcel, int]] | None = None  # set from the first parcel that has to wait
        self._handing: asyncio.Task[None] | None = None

    async def hello(self) -> Hello:
        """The first parcel."""
        found = await self._early.get()
        assert isinstance(found, Hello)  # members say it first, in their own process
        return found

    def attach(
        self, receive: Callable[[Parcel], None], lost: Callable[[Exception], None], inlet: Capacity | None = None
    ) -> None:
        """Sets the receiver of parcels, the callback for a peer that is gone, and the signal of free room."""
        self._receive, self._lost, self._inlet = receive, lost, inlet or Unlimited()
        while not self._early.empty():
            receive(self._early.get_nowait())

    def count_in(self, total: WireBytes) -> None:
        """Nothing is encoded, so that there are no bytes to count."""

    @property
    def outlet(self) -> Capacity:
        """Capacity for what is posted here."""
        return self

    @property
    def full(self) -> bool:
        """True if the sender has to wait. Delayed items are in transit, and take no room."""
        held = 0 if self._held is None else self._held.bytes
        return self._under_way + held > self._most

    def post(self, parcel: Parcel) -> None:
        """Sends a parcel; a message is copied before this returns."""
        if not self.done.is_set():
            self._carry(parcel)

    async def close(self) -> None:
        """Ends the stream; the other end learns it after all that was sent."""
        if not self.done.is_set():
            self.done.set()
            self._schedule(self._part)

    def _send(self, parcel: Parcel) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(parcel, Statement | Relayed):  # they travel beside the rounds, and take no time
            loop.call_soon(self._hand, parcel, self.session)
            return
        delay, now = self._delay(parcel) if isinstance(parcel, Item) else 0.0, loop.time()
        due = _size(parcel) if delay <= 0 and self._busy_until <= now + _AT_ONCE else 0
        self._under_way += due
        if not isinstance(parcel, Item) and self._busy_until < now:  # nothing is under way
            loop.call_soon(self._arrive, parcel, self.session, due)
            return
        copied = snapshot(parcel) if isinstance(parcel, Message) else parcel
        self._schedule(self._arrive, copied, self.session, due, delay=delay)

    def _schedule(self, arrive: Callable[..., None], *what: object, delay: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        # The next float after the last one: timers with equal times would fire in any order.
        self._busy_until = max(math.nextafter(self._busy_until, math.inf), loop.time() + delay)
        loop.call_at(self._busy_until, arrive, *what)

    def _part(self) -> None:
        self.other.done.set()
        self.other._lost(PartyAway(self.other.peer, "the connection was closed"))

    def _hand(self, parcel: Parcel, session: int) -> None:
        other = self.other
        if session not in (0, other.session):
            return  # of a session that was stopped
        if isinstance(parcel, Begin):
            other.session = parcel.session
        try:
            other._receive(parcel)
        except ContractError as broken:  # found by the receiver
            other._lost(broken)

    def _arrive(self, parcel: Parcel, session: int, due: int) -> None:
        self._under_way -= due
        self._left.set()
        if not self._held and not self.other._inlet.full:
            self._hand(parcel, session)
            return
        if self._held is None:
            self._held = Outbox(self._largest)
        self._held.put(parcel, (parcel, session), _size(parcel))
        if self._held.hopeless and not self._patient:
            size = self._held.bytes
            self._held.clear()
            self._lost(PartyAway(self.peer, f"it does not read: {size} bytes wait for it"))
        elif self._handing is None:
            self._handing = asyncio.get_running_loop().create_task(self._deliver(self._held))

    async def _deliver(self, held: Outbox[tuple[Parcel, int]]) -> None:
        while held:
            await self.other._inlet.room()
            while held and not self.other._inlet.full:
                self._hand(*held.take())
            self._left.set()
        self._handing = None


def _deliver(link: Link, item: Item) -> None:
    link.deliver(item)


def _size(parcel: Parcel) -> int:
    return memory(parcel) if isinstance(parcel, Message) else 64
