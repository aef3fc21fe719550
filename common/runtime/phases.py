"""Where the time of a half goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPUTING, WAITING, EVALUATION, CHECKPOINT = "computing", "waiting", "evaluation", "checkpoint"


class Phases:
    """Seconds by phase. A half is in one of them at a time, or in none, which is not counted.

    It is told by who gives the half its rounds, messages and context, so that no half measures itself.

    Args:
        names: the phases that there are, so that they are there before their first second.
        clock: seconds, of which only differences matter.
    """

    def __init__(self, *names: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._seconds = clock, dict.fromkeys(names, 0.0)
        self._now, self._since = "", clock()
        self._lock = threading.Lock()  # who reads is another thread, and must never see a sum that shrinks

    def turn(self, phase: str = "") -> None:
        """From now on the half is in this phase."""
        with self._lock:
            self._settle()
            self._now = phase

    @contextmanager
    def aside(self, phase: str) -> Iterator[None]:
        """Another phase for a while, out of computing; whatever else the half is in goes on."""
        if self._now != COMPUTING:
            yield
            return
        self.turn(phase)
        try:
            yield
        finally:
            if self._now == phase:
                self.turn(COMPUTING)

    def seconds(self) -> dict[str, float]:
        """By phase until now."""
        with self._lock:
            self._settle()
            return dict(self._seconds)

    def summary(self) -> dict[str, float]:
        """The same for a record, to the millisecond."""
        return {phase: round(seconds, 3) for phase, seconds in self.seconds().items()}

    def _settle(self) -> None:
        now = self._clock()
        if self._now:
            self._seconds[self._now] = self._seconds.get(self._now, 0.0) + now - self._since
        self._since = now
