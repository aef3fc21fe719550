"""Figures and their table, durations of calls in turn, and the machine that figures were taken on."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def describe() -> str:
    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().total / 2**30
    return (
        f"{processor(Path('/proc/cpuinfo'))}, {cores} cores, {memory:.0f} GiB; "
        f"Python {platform.python_version()}, torch {version('torch')}"
    )


def processor(cpuinfo: Path) -> str:
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


console = Console(width=150, highlight=False)
HEADINGS = ("benchmark", "what", "ours", "against", "ratio", "bound", "kept")


@dataclass(frozen=True)
class Figure:
    """A figure and its reference.

    Args:
        floor: the floor or rival measured in the same run, in `unit`; None where the bound is absolute.
        bound: limit of the ratio (or, without a floor, of the figure): at most, or with `least` at least. None for no
            bound.
    """

    what: str
    ours: float
    bound: float | None
    unit: str
    floor: float | None = None
    floor_name: str = ""
    least: bool = False

    @property
    def value(self) -> float:
        return self.ours if self.floor is None else self.ours / self.floor

    @property
    def holds(self) -> bool:
        """True if the bound is kept or absent; NaN breaks it."""
        if self.bound is None:
            return True
        return self.value >= self.bound if self.least else self.value <= self.bound

    def cells(self) -> tuple[str, ...]:
        floor = "" if self.floor is None else f"{self.floor:.4g} {self.unit}, {self.floor_name}"
        ratio = "" if self.floor is None else f"{self.value:.3g}"
        bound = "" if self.bound is None else f"{'>=' if self.least else '<='} {self.bound:g}"
        kept = "" if self.bound is None else "yes" if self.holds else "NO"
        return self.what, f"{self.ours:.4g} {self.unit}".rstrip(), floor, ratio, bound, kept


@dataclass(frozen=True)
class Result:
    """Result of one benchmark: its figures, or the reason why there are none.

    Args:
        figures: empty if it failed or was skipped.
        failed: the error, in one line; "" if there was none.
        skipped: why it was not run; "" if it was.
        when: the UTC day and minute at which it ended.
    """

    figures: tuple[Figure, ...] = ()
    failed: str = ""
    skipped: str = ""
    when: str = ""
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """True if it was skipped, or did not fail and keeps every bound."""
        return not self.failed and all(figure.holds for figure in self.figures)


def rows(results: Mapping[str, Result]) -> Iterator[tuple[str, ...]]:
    """The table's lines below `HEADINGS`; a benchmark without figures gives its reason in one."""
    for name, result in results.items():
        for figure in result.figures:
            yield (name, *figure.cells())
        if result.failed:
            yield name, f"failed: {result.failed}", "", "", "", "", "NO"
        if result.skipped:
            yield name, f"skipped: {result.skipped}", "", "", "", "", ""


def show(results: Mapping[str, Result], machine: str) -> None:
    table = Table(*HEADINGS, title=machine)
    for line in rows(results):
        table.add_row(*map(escape, line))
    console.print(table)


def markdown(results: Mapping[str, Result], machine: str) -> str:
    return f"{machine}.\n\n{grid(HEADINGS, rows(results))}"


def grid(heads: Sequence[object], lines: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    every = (heads, ("---",) * len(heads), *lines)
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in every)


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile, for a share from 0 to 1."""
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def in_turn(
    *what: Callable[[], object], clock: Callable[[], float] = time.perf_counter, repeats: int, warm: int = 0
) -> list[list[float]]:
    """Seconds of every call, measured in turn so that all see the same machine; the first `warm` turns do not count."""
    taken: list[list[float]] = [[] for _ in what]
    for turn in range(warm + repeats):
        for call, spent in zip(what, taken, strict=True):
            begin = clock()
            call()
            if turn >= warm:
                spent.append(clock() - begin)
    return taken


def times(*what: Callable[[], object]) -> list[float]:
    """Milliseconds of this thread's processor time, medians of 25 calls in turn."""
    return [1e3 * median(spent) for spent in in_turn(*what, clock=time.thread_time, repeats=25, warm=1)]
