"""Comparison with the papers: the paper's value, ours over seeds, and the verdict, for every cell, order and claim."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from colonnade_lab.papers.intervals import Interval, Outcome, Seeds, decide, interval, mean, paired, turned
from colonnade_lab.papers.measures import (
    RunRecord,
    Verdict,
    exact_verdict,
    family,
    lower_is_better,
    possible,
    unit,
    verdict,
)
from colonnade_lab.papers.measures import (
    seeds as seeds_of,
)
from colonnade_lab.papers.papers import Cell, Claim, Paper, PaperTable


@dataclass(frozen=True)
class Pair:
    """Two cells; the paper has the first above the second. `leads` are ours, one per seed that both have."""

    above: Cell
    below: Cell
    leads: tuple[float, ...]
    run: bool

    @property
    def outcome(self) -> Outcome | None:
        """Our order compared with the paper's; None if a cell has no run."""
        return decide(self.leads) if self.run else None

    @property
    def words(self) -> str:
        """Names both by what differs: `VIMADMM above VAFL, MNIST`."""
        if self.above.column == self.below.column:
            return f"{self.above.row} above {self.below.row}, {self.above.column}".rstrip(", ")
        return f"{self.above.column} above {self.below.column}, {self.above.row}".rstrip(", ")

    @property
    def paper_words(self) -> str:
        return f"+{self.above.paper - self.below.paper:.{max(self.above.digits, self.below.digits)}f}"

    @property
    def lead_words(self) -> str:
        return difference_words(self.leads, self.above.measure)


def pairs(table: PaperTable, ours: Sequence[Seeds]) -> tuple[Pair, ...]:
    """All pairs of results in a column, a row or both whose values the paper separates by more than the slack.

    Cells of one run and one measure are no pair, since they have one value here. Nor are cells of several data sets
    (`group`) or of several measures; all accuracies of test rows are one measure. Repeated and `shown` cells are
    compared with results alone: two of them are a pair where they are printed first.

    Args:
        ours: values of each of its cells, one per seed.
    """
    return tuple(_pairs(table, ours))


def _pairs(table: PaperTable, ours: Sequence[Seeds]) -> Iterator[Pair]:
    learned = [(cell, found) for cell, found in zip(table.cells, ours, strict=True) if cell.kind != "accounting"]
    for (one, first), (other, second) in combinations(learned, 2):
        if "result" not in {one.kind, other.kind} or not _beside(one, other, table.order) or not _separated(one, other):
            continue
        run = bool(first) and bool(second)
        if one.paper > other.paper:
            yield Pair(one, other, paired(first, second), run)
        else:
            yield Pair(other, one, paired(second, first), run)


def _beside(one: Cell, other: Cell, order: str) -> bool:
    columns = order in {"columns", "both"} and one.column == other.column
    rows = order in {"rows", "both"} and one.row == other.row
    same = (one.run, one.measure) == (other.run, other.measure)
    return (columns or rows) and not same and one.kin == other.kin and family(one.measure) == family(other.measure)


def _separated(one: Cell, other: Cell) -> bool:
    return abs(one.paper - other.paper) > max(one.slack, other.slack)


_WORST_FIRST: tuple[Outcome, ...] = ("reversed", "not reached", "open", "holds")

Find = Callable[[str, int], RunRecord | None]
"""The record of a run with a seed, if there is one."""


@dataclass(frozen=True)
class CellStanding:
    """A cell with our values.

    Args:
        ours: one value per seed.
        proposal: whether it belongs to the paper's own method, not to one that the paper compares with.
    """

    cell: Cell
    ours: Seeds
    proposal: bool = True

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(self.ours.values())

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def interval(self) -> Interval:
        return interval(self.values)

    @property
    def verdict(self) -> Verdict | None:
        """Our values compared with the paper's; None without runs. One seed decides what follows from shapes."""
        if not self.ours:
            return None
        if self.cell.kind == "accounting":
            return exact_verdict(self.mean, self.cell.paper, self.cell.slack, "neither")
        return verdict(self.values, self.cell.paper, self.cell.slack, self.cell.direction)

    @property
    def words(self) -> str:
        return without_mean(self.values, self.cell.measure) or self._possible.words(_digits(self.cell))

    @property
    def _possible(self) -> Interval:
        return self.interval.within(*possible(self.cell.measure))

    @property
    def label(self) -> str:
        return self.cell.label

    @property
    def unit(self) -> str:
        return unit(self.cell.measure)

    @property
    def spoken(self) -> str:
        return f"{self.label}: the paper {self.paper_words}, ours {self.words}"

    @property
    def paper_words(self) -> str:
        """The paper's value as printed, with its deviation to as many digits."""
        said = f"{self.cell.paper:.{self.cell.digits}f}"
        if self.cell.spread is None:
            return said
        return f"{said} ± {self.cell.spread:.{max(self.cell.digits, 1)}f}"


@dataclass(frozen=True)
class ClaimStanding:
    """A claim with the measurements of each of its runs, in the claim's order."""

    claim: Claim
    ours: Mapping[str, Seeds]

    @property
    def values(self) -> dict[str, float]:
        return {run: mean(tuple(found.values())) for run, found in self.ours.items()}

    @property
    def leads(self) -> dict[str, tuple[float, ...]]:
        """The first run's lead over every other run, one per seed that both have."""
        first, *others = self.ours
        ahead = {run: paired(self.ours[first], self.ours[run]) for run in others}
        return {run: turned(found) for run, found in ahead.items()} if self.claim.fewer else ahead

    @property
    def outcome(self) -> Outcome | None:
        """The first is ahead of all others, behind one, short of the lead, or undecided; None if one has no run."""
        if not all(self.ours.values()):
            return None
        found = {decide(lead, self.claim.least) for lead in self.leads.values()}
        return next((outcome for outcome in _WORST_FIRST if outcome in found), "open")

    @property
    def words(self) -> str:
        return ", ".join(f"{run} {self.said(run)}" for run in self.ours)

    @property
    def lead_words(self) -> str:
        """The first run's smallest lead, with the interval of the paired difference."""
        if self.outcome is None:
            return ""
        lead = min(self.leads.values(), key=lambda found: mean(found) if found else math.inf)
        return difference_words(lead, next(iter(self.claim.measures.values())))

    @property
    def seeds(self) -> str:
        """Number of seeds of every run: one number, or the least and the most."""
        counts = [len(found) for found in self.ours.values()]
        least, most = min(counts), max(counts)
        return f"{least}" if least == most else f"{least} to {most}"

    @property
    def text(self) -> str:
        """The claim, with the required lead unless its text has the number, and marked if it is ours."""
        own = {"ours": "beyond the paper: ", "setting": "our setting decides: "}.get(self.claim.of, "")
        number = f"{self.claim.by:g}"
        if not self.claim.by or number in self.claim.text.split():
            return f"{own}{self.claim.text}"
        sign = difference_unit(next(iter(self.claim.measures.values())))
        lead = "1 point" if (number, sign) == ("1", "points") else f"{number} {sign}".strip()
        return f"{own}{self.claim.text} (by {lead})"

    def said(self, run: str) -> str:
        measure = self.claim.measures[run]
        without = without_mean(tuple(self.ours[run].values()), measure)
        return without or f"{self.values[run]:.2f} {unit(measure)}".strip()


@dataclass(frozen=True)
class TableStanding:
    name: str
    table: PaperTable
    cells: tuple[CellStanding, ...]
    claims: tuple[ClaimStanding, ...]

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        return pairs(self.table, [one.ours for one in self.cells])

    @property
    def heading(self) -> str:
        """`table3` as Table 3, `figures3to5` as Figures 3 to 5."""
        return " ".join(re.findall(r"[0-9]+|[^0-9]+", self.name)).capitalize()

    @property
    def note(self) -> str:
        """The table's note, or that shortfalls are unexplained; what is undecided needs seeds, not an explanation."""
        found = {pair.outcome for pair in self.pairs} | {claim.outcome for claim in self.claims}
        worse = any(one.verdict in {"worse", "differs"} for one in self.cells)
        short = worse or {"reversed", "not reached"} & found
        return self.table.note or ("Of what is short here no reason was found yet." if short else "")


def stand(paper: Paper, find: Find, seeds: int) -> list[TableStanding]:
    def records(run: str) -> dict[int, RunRecord]:
        found = {seed: find(run, seed) for seed in range(seeds)}
        return {seed: record for seed, record in found.items() if record is not None}

    def values(run: str, measure: str) -> Seeds:
        return seeds_of(records(run), measure)

    def standing(name: str, table: PaperTable) -> TableStanding:
        cells = tuple(as_looked_at(cell, records(cell.run).values()) for cell in table.cells)
        return TableStanding(
            name,
            table.model_copy(update={"cells": cells}),
            tuple(CellStanding(cell, values(cell.run, cell.measure), paper.proposed(cell)) for cell in cells),
            tuple(_claim(claim, values) for claim in table.claims),
        )

    return [standing(name, table) for name, table in paper.tables.items()]


def as_looked_at(cell: Cell, records: Iterable[RunRecord]) -> Cell:
    """Sets the cell's kind from its runs.

    Bytes to an accuracy that every seed reaches at its first evaluation follow from the shapes, and are accounting; if
    a seed needs more evaluations they are a result. Without runs the list's kind counts.
    """
    kind, _, share = cell.measure.partition("@")
    looks = [record.points for record in records]
    if cell.kind not in {"result", "accounting"} or kind not in {"mb", "mib"} or not looks:
        return cell
    if not share or share.endswith("epochs"):
        return cell
    first = all(points and points[0].accuracy >= float(share) / 100 for points in looks)
    return cell.model_copy(update={"kind": "accounting" if first else "result"})


def without_mean(ours: Sequence[float], measure: str) -> str:
    """Says why these values, one per seed, have no mean; "" if they have one.

    One seed that never reached the target leaves none: a mean of the others would be too good.
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


def difference_words(leads: Sequence[float], measure: str) -> str:
    """Paired differences in readable form, `+0.31 (0.12 to 0.50) points`; "" if there is no mean."""
    if not leads or not math.isfinite(mean(leads)):
        return ""
    found = interval(leads)
    return f"{'+' if found.mean > 0 else ''}{found.words(2)} {difference_unit(measure)}".strip()


def difference_unit(measure: str) -> str:
    return "points" if unit(measure) == "%" else unit(measure)


def with_all(tables: Sequence[TableStanding], seeds: int) -> int:
    """Number of cells and claims with at least `seeds` seeds in each of their runs."""
    found = [len(cell.ours) for table in tables for cell in table.cells]
    found += [min(map(len, claim.ours.values())) for table in tables for claim in table.claims]
    return sum(number >= seeds for number in found)


def _claim(claim: Claim, values: Callable[[str, str], Seeds]) -> ClaimStanding:
    return ClaimStanding(claim, {run: values(run, measure) for run, measure in claim.measures.items()})


def _digits(cell: Cell) -> int:
    return max(3 if unit(cell.measure) == "MiB" and cell.paper < 1 else 2, cell.digits)
