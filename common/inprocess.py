"""The conversation inside one event loop, on a virtual clock: what most tests run on.

`VirtualLoop` never sleeps: when nothing is ready it moves its clock to the next timer. An hour
of stragglers passes in milliseconds, and always in the same order.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from common.conversation import SERVER, Carrier, Cohort, Item, Link
from common.mailbox import Mailbox
from common.message import Kinds, Message, snapshot

_T = TypeVar("_T")

# Seconds that a message of a party takes to arrive: (from, to, item) -> seconds.
Delay = Callable[[str, str, Item], float]


class _NoWaitSelector(selectors.SelectSelector):
    """Instead of waiting for the timeout, moves the loop's clock by it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every coroutine waits for another: nothing is ready and no timer is set")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and jumps from timer to timer."""

    def __init__(self) -> None:
        self._virtual = _NoWaitSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual.now


def run_virtual(main: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine to its end on a virtual clock of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def connect(
    parties: list[str],
    kinds: Kinds,
    limits: Mapping[str, int],
    delay: Delay = lambda _from, _to, _item: 0.0,
    mailbox: Mailbox | None = None,
    on_round: Callable[[int], None] = lambda _round: None,
    between: Callable[[int], Awaitable[None]] | None = None,
    compress: Callable[[str], Callable[[Message], Message]] = lambda _party: lambda message: message,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[Cohort, dict[str, Link]]:
    """Joins a server and parties: the server's cohort, and every party's link to the server."""
    mailbox = mailbox or Mailbox()
    at_server: dict[str, Link] = {}
    at_party: dict[str, Link] = {}
    for party in parties:
        up = _Wire(at_server, party, partial(delay, party, SERVER))
        down = _Wire(at_party, party, partial(delay, SERVER, party))
        at_server[party] = Link(party, kinds, limits, down, mailbox, compress(party))
        at_party[party] = Link(SERVER, kinds, limits, up)
    return Cohort(at_server, mailbox, on_round, between, enough), at_party


class _Wire(Carrier):
    """One direction between two links: items arrive in the order in which they were sent."""

    def __init__(self, links: dict[str, Link], party: str, delay: Callable[[Item], float]) -> None:
        self._links, self._party, self._delay = links, party, delay
        self._busy_until = 0.0

    def __call__(self, item: Item) -> None:
        loop = asyncio.get_running_loop()
        # The next float after the last one: timers of equal times would fire in any order.
        self._busy_until = max(math.nextafter(self._busy_until, math.inf), loop.time() + self._delay(item))
        loop.call_at(self._busy_until, self._links[self._party].deliver, _copied(item))


def _copied(item: Item) -> Item:
    return snapshot(item) if isinstance(item, Message) else item
