"""What this process is doing, for consoles: code that may take seconds announces its work, and does not print.

A console reads the activities when it draws (colonnade/reports/console/live.py); reading is optional.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

# Appended and removed at once, read as a copy: threads need no lock. An activity that its owner has dropped is over.
_under_way: list[weakref.ref[Activity]] = []


@dataclass(eq=False)
class Activity:
    """Work that may take seconds. Its fields may be set by any thread at any time.

    Args:
        what: the work, such as `aligning rows`.
        total: number of its steps; 0 if unknown.
        unit: name of a step, plural; "" if `what` has it.
        kept: steps of `done` from an earlier start, ignored for the time left.
        facts: results so far, each a few words, the most important first.
    """

    what: str
    total: int = 0
    unit: str = ""
    done: int = 0
    kept: int = 0
    facts: tuple[str, ...] = ()
    begun: float = field(default_factory=time.monotonic)

    def begin(self) -> None:
        _under_way.append(weakref.ref(self, _forget))

    def end(self) -> None:
        _forget(weakref.ref(self))

    def step(self, count: int = 1) -> None:
        self.done += count

    def left(self, now: float) -> float | None:
        """Seconds left at the pace so far; None if unknown. `now` is on the clock of `begun`."""
        made = self.done - self.kept
        if made <= 0 or self.total <= 0:
            return None
        return max(now - self.begun, 0.0) / made * max(self.total - self.done, 0)


def _forget(one: weakref.ref[Activity]) -> None:
    with suppress(ValueError):
        _under_way.remove(one)


@contextmanager
def activity(what: str, total: int = 0, unit: str = "") -> Iterator[Activity]:
    """Announces work until the block ends. Arguments as for `Activity`."""
    found = Activity(what, total, unit)
    found.begin()
    try:
        yield found
    finally:
        found.end()


def under_way() -> tuple[Activity, ...]:
    """All activities that have begun and not ended, in order of their beginnings."""
    return tuple(one for found in tuple(_under_way) if (one := found()) is not None)
