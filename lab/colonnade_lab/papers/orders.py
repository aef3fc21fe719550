"""The paper's order: pairs of cells that it separates, and their order in our results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from colonnade_lab.papers.intervals import Outcome, Seeds, decide, paired
from colonnade_lab.papers.measures import family
from colonnade_lab.papers.papers import Cell, PaperTable


@dataclass(frozen=True)
class Pair:
    """Two cells; the paper has the first above the second.

    Args:
        leads: ours of the first minus ours of the second, one per seed that both have.
        run: whether both were run.
    """

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
        """Names both by their difference: `VIMADMM above VAFL, MNIST`."""
        if self.above.column == self.below.column:
            return f"{self.above.row} above {self.below.row}, {self.above.column}".rstrip(", ")
        return f"{self.above.column} above {self.below.column}, {self.above.row}".rstrip(", ")


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
    """True if the table puts them into one column or row that its `order` includes."""
    columns = order in {"columns", "both"} and one.column == other.column
    rows = order in {"rows", "both"} and one.row == other.row
    same = (one.run, one.measure) == (other.run, other.measure)
    return (columns or rows) and not same and one.kin == other.kin and family(one.measure) == family(other.measure)


def _separated(one: Cell, other: Cell) -> bool:
    return abs(one.paper - other.paper) > max(one.slack, other.slack)
