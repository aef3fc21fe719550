from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_EVALUATING: ContextVar[bool] = ContextVar("evaluating", default=False)

COMPUTING, WAITING, EVALUATION, CHECKPOINT = "computing", "waiting", "evaluation", "checkpoint"


def evaluating() -> bool:
    return _EVALUATING.get()


def evaluation(run: Callable[_P, Coroutine[Any, Any, _R]]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    """Marks a coroutine function as an evaluation, whose computation takes no time on the virtual clock."""

    @wraps(run)
    async def marked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = _EVALUATING.set(True)
        try:
            return await run(*args, **kwargs)
        finally:
            _EVALUATING.reset(before)

    return marked


class Phases:
    """Seconds by phase. A protocol side is in at most one phase at a time; time in none is not counted.

    The caller that supplies rounds, messages and context drives it, so protocol code does not measure itself.

    Args:
        names: all phases, so that each is reported from 0 seconds on.
        clock: seconds, of which only differences matter.
    """

    def __init__(self, *names: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._seconds = clock, dict.fromkeys(names, 0.0)
        self._now, self._since = "", clock()
        self._lock = threading.Lock()  # read from another thread, which must never see a decreasing sum

    def turn(self, phase: str = "") -> None:
        with self._lock:
            self._settle()
            self._now = phase

    @contextmanager
    def aside(self, phase: str) -> Iterator[None]:
        """Enters another phase temporarily while computing; has no effect in any other phase."""
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
        with self._lock:
            self._settle()
            return dict(self._seconds)

    def summary(self) -> dict[str, float]:
        """`seconds`, rounded to milliseconds."""
        return {phase: round(seconds, 3) for phase, seconds in self.seconds().items()}

    def _settle(self) -> None:
        now = self._clock()
        if self._now:
            self._seconds[self._now] = self._seconds.get(self._now, 0.0) + now - self._since
        self._since = now
