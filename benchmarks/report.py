"""Figures, and the table of them that `make bench` prints."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
        """The number that the bound limits."""
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
    """The table for docs/performance.md."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *rows(results)]
    return "\n".join(
        [f"{machine}.", "", *(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)]
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile, for a share from 0 to 1."""
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
