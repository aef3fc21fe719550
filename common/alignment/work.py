"""How long computations are done beside a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Work(Protocol):
    """Does a computation and waits for it."""

    async def __call__(self, call: Callable[[], T], /) -> T:
        """What the call returns."""


async def at_once(call: Callable[[], T]) -> T:
    """In the event loop itself: on the virtual clock, where nothing else takes time."""
    return call()


async def aside(call: Callable[[], T]) -> T:
    """In a thread, so that the connection stays alive meanwhile."""
    return await asyncio.to_thread(call)
