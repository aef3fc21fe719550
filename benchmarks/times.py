"""Durations of several functions, measured in turn so that all see the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.report import median

REPEATS = 25


def times(*what: Callable[[], object]) -> list[float]:
    """Milliseconds of processor time of each, medians of runs in turn; the first run warms up."""
    taken: list[list[float]] = [[] for _ in what]
    for _ in range(REPEATS + 1):
        for call, spent in zip(what, taken, strict=True):
            begin = time.thread_time()
            call()
            spent.append(1e3 * (time.thread_time() - begin))
    return [median(spent[1:]) for spent in taken]
