"""Fault injection, as a party's `chaos` says (common/config/chaos.py): delays, low bandwidth, lost responses, crashes.

It wraps the messages that a party sends and receives, and measures time by the running loop's clock, real or virtual.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from colonnade.common.config.chaos import (
    ChaosConfig,
    Pattern,
    PatternIndex,
    Pause,
    bits_per_second,
    parse_partition,
    parse_pause,
)
from colonnade.common.conversation.capacity import Capacity
from colonnade.common.conversation.conversation import Carrier
from colonnade.common.conversation.parcels import Item, Open
from colonnade.common.messaging.message import Message, payload_bytes, snapshot


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


class Incidents(Protocol):
    """Faults of a process as a whole."""

    def pause(self, chaos: Chaos, pause: Pause) -> None:
        """Pauses the process."""

    def crash(self, chaos: Chaos, round: int) -> None:
        """Ends the process without notice."""


class Chaos:
    """Injects faults between a party and its connection.

    Args:
        seed: every draw depends on it, the party's index, the kind and the round: a repeated round has the same faults.
        incidents: implementation of pauses and crashes.
        report: called with every fault: (what, fields).
    """

    def __init__(
        self,
        config: ChaosConfig,
        index: PatternIndex,
        seed: int,
        incidents: Incidents,
        report: Callable[..., object] = lambda *_what, **_fields: None,
    ) -> None:
        self._config, self._index, self._seed, self._incidents, self.report = config, index, seed, incidents, report
        self._delays, self._drops = config.delay, config.drop
        self._jitter = Pattern.parse(config.jitter)
        self._bandwidth = bits_per_second(config.bandwidth)
        self._partitions = [parse_partition(text) for text in config.partition]
        self._pauses = [parse_pause(text) for text in config.pause]
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._jitters = random.Random(f"{seed}/{index.number}/jitter")  # noqa: S311  # faults, not privacy
        self._still_until, self._over = 0.0, False
        self._up, self._down = NarrowLine(), NarrowLine()
        self._making: dict[type[Message], NarrowLine] = {}

    def outward(self, carry: Carrier, outlet: Capacity | None = None) -> Carrier:
        """Wraps `carry` for items that the party sends.

        Args:
            outlet: the connection's; a sender sees its room before the message is delayed. None for unlimited room.
        """
        carry = self._until_end(carry if outlet is None else Waiting(carry, outlet))

        def send(item: Item) -> None:
            if not isinstance(item, Message):
                self._pass(self._up, item, carry)
                return
            if self._draws(item, "drop").random() < _of_kind(self._drops, item, 0.0):
                self.report("dropped", kind_of=type(item).__name__, round=item.round)
                return
            delay = Pattern.parse(_of_kind(self._delays, item, "0s")).draw(self._draws(item, "delay"), self._index)
            self._make(item, delay, carry)

        return send

    def inward(self, deliver: Callable[[Item], None]) -> Callable[[Item], None]:
        """Wraps `deliver` for items that the party receives."""
        deliver = self._until_end(deliver)

        def receive(item: Item) -> None:
            if isinstance(item, Open):
                self._strike(item.round)
            self._pass(self._down, item, deliver)

        return receive

    def hold(self, seconds: float) -> None:
        """Blocks both directions for some seconds: a pause of a party on the virtual clock."""
        self._still_until = self._loop.time() + seconds

    def end(self) -> None:
        """Discards delayed items at the end of a session: they would arrive in the next one."""
        self._over = True

    def _until_end(self, to: Callable[[Item], None]) -> Callable[[Item], None]:
        def passed(item: Item) -> None:
            if not self._over:
                to(item)

        return passed

    def _strike(self, round: int) -> None:
        if self._config.crash == round:
            self._incidents.crash(self, round)
        for pause in self._pauses:
            if pause.round == round:
                self._incidents.pause(self, pause)

    def _make(self, message: Message, delay: float, carry: Carrier) -> None:
        """Delays a response before it reaches the connection, so that other kinds of messages do not wait for it."""
        now, kind = self._loop.time(), type(message)
        queue = self._making.setdefault(kind, NarrowLine())
        if delay <= 0 and not queue.waiting:
            self._pass(self._up, message, carry)
            return
        queue.enter(self._loop, now + delay, lambda ready: self._pass(self._up, ready, carry), snapshot(message))

    def _pass(self, line: NarrowLine, item: Item, to: Callable[[Item], None]) -> None:
        now = self._loop.time()
        size = payload_bytes(item) if isinstance(item, Message) else 0
        ready = max(now + self._jitter.draw(self._jitters, self._index), line.free, self._still_until)
        for begin, end in self._partitions:
            if begin <= ready - self._begun < end:
                ready = self._begun + end
        ready += 8 * size / self._bandwidth
        if ready <= now and not line.waiting:
            to(item)
            return
        line.enter(self._loop, ready, to, snapshot(item) if isinstance(item, Message) else item)

    def _draws(self, message: Message, what: str) -> random.Random:
        key = f"{self._seed}/{self._index.number}/{type(message).__name__}/{message.round}/{what}"
        return random.Random(hashlib.sha256(key.encode()).digest())  # noqa: S311  # faults, not privacy


def _of_kind(named: Any, message: Message, otherwise: Any) -> Any:
    return named.get(type(message).__name__, otherwise) if isinstance(named, Mapping) else named
