"""Where long computations run during a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Work(Protocol):
    async def __call__(self, call: Callable[[], T], /) -> T: ...


async def at_once(call: Callable[[], T]) -> T:
    """Runs the call in the event loop itself: for the virtual clock, on which computation takes no time."""
    return call()


async def aside(call: Callable[[], T]) -> T:
    """Runs the call in a thread, so that the connection stays alive meanwhile."""
    return await asyncio.to_thread(call)


def tenths(event: Callable[..., object]) -> Callable[[int, int], None]:
    def report(done: int, of: int) -> None:
        if 10 * done // of > 10 * (done - 1) // of:
            event(done=done, of=of)

    return report
