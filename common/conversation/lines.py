"""Lines of messages that injected faults delay."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from colonnade.common.conversation.capacity import Capacity
from colonnade.common.conversation.control import Item
from colonnade.common.conversation.conversation import Carrier
from colonnade.common.messaging.message import Message, snapshot


class Waiting:
    """Sends delayed items as there is room for them: a connection given more than it takes counts as lost."""

    def __init__(self, carry: Carrier, outlet: Capacity) -> None:
        self._carry, self._outlet = carry, outlet
        self._items: deque[Item] = deque()
        self._sending: asyncio.Task[None] | None = None

    def __call__(self, item: Item) -> None:
        """Sends an item, or a copy of it later when there is room."""
        if not self._items and not self._outlet.full:
            self._carry(item)
            return
        self._items.append(snapshot(item) if isinstance(item, Message) else item)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        while self._items:
            await self._outlet.room()
            self._carry(self._items.popleft())


class NarrowLine:
    """One direction of a connection: items arrive in the order in which they were sent."""

    def __init__(self) -> None:
        self.free, self.waiting = 0.0, 0

    def enter(self, loop: asyncio.AbstractEventLoop, ready: float, to: Callable[[Any], None], item: Item) -> None:
        """Passes on an item at a time of the loop's clock, or right after the one before it."""
        # The next float after the last one: timers with equal times would fire in any order.
        self.free = max(ready, math.nextafter(self.free, math.inf))
        self.waiting += 1
        loop.call_at(self.free, self.deliver, to, item)

    def deliver(self, to: Callable[[Any], None], item: Item) -> None:
        """Passes on an item now."""
        self.waiting -= 1
        to(item)
