"""The paper's order: pairs of cells that it separates, and their order here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from colonnade_lab.papers.intervals import Outcome, Seeds, decide, paired
from colonnade_lab.papers.measures import family
from colonnade_lab.papers.papers import Cell, PaperTable


@dataclass(frozen=True)
class Pair:
    """Two cells of which the paper has the first above the second.

    Args:
        above, below: the cells.
        leads: how far ours of the first is above that of the second, one a seed that both have.
        run: whether both were run.
    """

    above: Cell
    below: Cell
    leads: tuple[float, ...]
    run: bool

    @property
    def outcome(self) -> Outcome | None:
        """Our order beside the paper's; None if one of them was not run yet."""
        return decide(self.leads) if self.run else None

    @property
    def words(self) -> str:
        """Both by what differs between them: `VIMADMM above VAFL, MNIST`."""
        if self.above.column == self.below.column:
            return f"{self.above.row} above {self.below.row}, {self.above.column}".rstrip(", ")
        return f"{self.above.column} above {self.below.column}, {self.above.row}".rstrip(", ")


def pairs(table: PaperTable, ours: Sequence[Seeds]) -> tuple[Pair, ...]:
    """All pairs of results in a column, a row or both whose values the paper separates by more than the slack.

    Cells of one run and one measure are no pair, since they have one value here. Cells of several data sets (`group`)
    or of several measures are none either; all accuracies of test rows are one measure. A repeated cell is compared
    with results, and not with other repeated ones, which are a pair where they are printed first; so is one that is
    shown only.

    Args:
        table: the table.
        ours: of each of its cells the values, one a seed.
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
    """True if the table puts them into one column or row, as far as its order is asked for."""
    columns = order in {"columns", "both"} and one.column == other.column
    rows = order in {"rows", "both"} and one.row == other.row
    same = (one.run, one.measure) == (other.run, other.measure)
    return (columns or rows) and not same and one.kin == other.kin and family(one.measure) == family(other.measure)


def _separated(one: Cell, other: Cell) -> bool:
    return abs(one.paper - other.paper) > max(one.slack, other.slack)
