"""One line of the table that `make bench` prints."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

console = Console(width=150, highlight=False)


@dataclass(frozen=True)
class Figure:
    """A figure and what it is held against.

    Args:
        what: what was measured.
        ours: in `unit`.
        floor: the floor or rival measured in the same run, in `unit`; None where the bound is absolute.
        floor_name: what the floor is.
        bound: what the ratio (or, without a floor, the figure) may at most be; at least, if `least`.
        unit: of both.
    """

    what: str
    ours: float
    bound: float
    unit: str
    floor: float | None = None
    floor_name: str = ""
    least: bool = False

    @property
    def value(self) -> float:
        """What the bound is for."""
        return self.ours if self.floor is None else self.ours / self.floor

    @property
    def holds(self) -> bool:
        """Whether the bound is kept."""
        return self.value >= self.bound if self.least else self.value <= self.bound


def show(figures: Sequence[Figure]) -> None:
    """Prints the table, with the machine named."""
    title = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table("what", "ours", "against", "floor", "ratio", "bound", "", title=title)
    for f in figures:
        floor = "" if f.floor is None else f"{f.floor:.4g} {f.unit}"
        ratio = "" if f.floor is None else f"{f.value:.2f}"
        bound = f"{'>=' if f.least else '<='} {f.bound:g}"
        table.add_row(f.what, f"{f.ours:.4g} {f.unit}", f.floor_name, floor, ratio, bound, "yes" if f.holds else "NO")
    console.print(table)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)
