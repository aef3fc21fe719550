"""Comparison with the papers: for every cell and claim the paper's value, ours over the seeds, and the verdict."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from colonnade.reproduction.papers.measures import RunRecord, lower_is_better, reached, unit, value
from colonnade.reproduction.papers.papers import Cell, Claim, Paper, PaperTable

Find = Callable[[str, int], RunRecord | None]
"""The record of a run with a seed, if there is one."""


@dataclass(frozen=True)
class CellStanding:
    """A cell with what was measured, a value a seed."""

    cell: Cell
    ours: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds that were run; not a number where none was."""
        return statistics.fmean(self.ours) if self.ours else math.nan

    @property
    def spread(self) -> float | None:
        """Standard deviation between seeds, of two or more."""
        return statistics.stdev(self.ours) if len(self.ours) > 1 and math.isfinite(self.mean) else None

    @property
    def reached(self) -> bool | None:
        """True if it is reached; None if nothing was run yet."""
        return reached(self.mean, self.cell.paper, self.cell.measure) if self.ours else None

    @property
    def words(self) -> str:
        """The value as people read it."""
        if without := without_mean(self.ours, self.cell.measure):
            return without
        said = f"{self.mean:.{_digits(self.cell)}f}"
        return said if self.spread is None else f"{said} ± {self.spread:.{_digits(self.cell)}f}"

    @property
    def label(self) -> str:
        """Position in its table."""
        return f"{self.cell.row}, {self.cell.column}"

    @property
    def spoken(self) -> str:
        """All of it, for those who hear a picture."""
        return f"{self.label}: the paper {self.paper_words}, ours {self.words}"

    @property
    def paper_words(self) -> str:
        """The paper's value as people read it: as it is printed, or with its deviation in as many digits as ours."""
        if self.cell.spread is None:
            return f"{self.cell.paper:g}"
        return f"{self.cell.paper:.{_digits(self.cell)}f} ± {self.cell.spread:.{_digits(self.cell)}f}"


@dataclass(frozen=True)
class ClaimStanding:
    """A claim with what was measured of each of its runs, in the claim's order, a value a seed."""

    claim: Claim
    ours: Mapping[str, tuple[float, ...]]

    @property
    def values(self) -> dict[str, float]:
        """The mean of each run over its seeds; not a number where none was run."""
        return {run: statistics.fmean(found) if found else math.nan for run, found in self.ours.items()}

    @property
    def reached(self) -> bool | None:
        """True if the first is ahead of all others; None if one was not run yet."""
        if not all(self.ours.values()):
            return None
        first, *others = self.values.values()
        slack = self.claim.within
        if self.claim.fewer:
            return all(first < other + slack for other in others)
        return all(first > other - slack for other in others)

    @property
    def words(self) -> str:
        """Measured values, run by run."""
        return ", ".join(f"{run} {self.said(run)}" for run in self.ours)

    @property
    def seeds(self) -> str:
        """Number of seeds of every run: one number, or the least and the most."""
        counts = [len(found) for found in self.ours.values()]
        least, most = min(counts), max(counts)
        return f"{least}" if least == most else f"{least} to {most}"

    def said(self, run: str) -> str:
        """A run's value as people read it, with its unit."""
        measure = self.claim.measures[run]
        return without_mean(self.ours[run], measure) or f"{self.values[run]:.2f} {unit(measure)}".strip()


@dataclass(frozen=True)
class TableStanding:
    """A table with its cells and claims."""

    name: str
    table: PaperTable
    cells: tuple[CellStanding, ...]
    claims: tuple[ClaimStanding, ...]

    @property
    def short(self) -> bool:
        """True if a cell or a claim falls short."""
        return False in [one.reached for one in self.cells] + [one.reached for one in self.claims]


@dataclass(frozen=True)
class Count:
    """Numbers of cells and claims that are reached, fall short, wait to be run, and are left out."""

    reached: int
    short: int
    waiting: int
    excluded: int

    @property
    def listed(self) -> int:
        """All that are not left out."""
        return self.reached + self.short + self.waiting


def stand(paper: Paper, find: Find, seeds: int) -> list[TableStanding]:
    """Of every table of a paper."""

    def values(run: str, measure: str) -> tuple[float, ...]:
        records = (find(run, seed) for seed in range(seeds))
        return tuple(value(record, measure) for record in records if record is not None)

    return [
        TableStanding(
            name,
            table,
            tuple(CellStanding(cell, values(cell.run, cell.measure)) for cell in table.cells),
            tuple(_claim(claim, values) for claim in table.claims),
        )
        for name, table in paper.tables.items()
    ]


def count(tables: Sequence[TableStanding]) -> Count:
    """Counts the verdicts."""
    found = [cell.reached for table in tables for cell in table.cells]
    found += [claim.reached for table in tables for claim in table.claims]
    left_out = sum(excluded.cells for table in tables for excluded in table.table.excluded)
    return Count(found.count(True), found.count(False), found.count(None), left_out)


def without_mean(ours: Sequence[float], measure: str) -> str:
    """Why these values, one a seed, have no mean, in words; "" if they have one.

    One seed that never got there leaves none: what the others came to would be too good.
    """
    if not ours:
        return "not run yet"
    if any(math.isnan(one) for one in ours):
        return "no such number"
    lost = sum(math.isinf(one) for one in ours)
    if not lost:
        return ""
    said = "never" if lower_is_better(measure) and measure != "epsilon" else "no bound"
    return said if lost == len(ours) else f"{said} in {lost} of {len(ours)}"


def with_all(tables: Sequence[TableStanding], seeds: int) -> int:
    """Number of cells and claims with so many seeds, each of a claim's runs among them."""
    found = [len(cell.ours) for table in tables for cell in table.cells]
    found += [min(map(len, claim.ours.values())) for table in tables for claim in table.claims]
    return sum(number >= seeds for number in found)


def _claim(claim: Claim, values: Callable[[str, str], tuple[float, ...]]) -> ClaimStanding:
    return ClaimStanding(claim, {run: values(run, measure) for run, measure in claim.measures.items()})


def _digits(cell: Cell) -> int:
    return 3 if unit(cell.measure) == "MiB" and cell.paper < 1 else 2
