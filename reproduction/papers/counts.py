"""The three counts: results beside the paper's values, the paper's orders, and its claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from colonnade.reproduction.papers.intervals import Outcome
from colonnade.reproduction.papers.paper_comparison import TableStanding


@dataclass(frozen=True)
class Tally:
    """Numbers of orders that hold, are reversed, are open, and wait to be run."""

    holds: int
    reversed: int
    open: int
    waiting: int

    @property
    def listed(self) -> int:
        """All of them."""
        return self.holds + self.reversed + self.open + self.waiting

    @property
    def words(self) -> str:
        """`12 hold, 3 are reversed, 2 open`."""
        hold = "holds" if self.holds == 1 else "hold"
        said = (
            f"{self.holds} {hold}, {self.reversed} {'is' if self.reversed == 1 else 'are'} reversed, {self.open} open"
        )
        return f"{said}, {self.waiting} not run yet" if self.waiting else said


@dataclass(frozen=True)
class Count:
    """Verdicts of tables.

    Args:
        agrees, better, worse, waiting: of results; those that differ where only agreement counts are worse.
        pairs: orders of results that the paper separates.
        claims: of the paper.
        own: claims of ours, beyond the paper.
        accounting: cells that follow from shapes, and how many of them agree.
        repeats: cells that are printed elsewhere too.
        excluded: cells that are left out.
    """

    agrees: int
    better: int
    worse: int
    waiting: int
    pairs: Tally
    claims: Tally
    own: Tally
    accounting: tuple[int, int]
    repeats: int
    excluded: int

    @property
    def run(self) -> int:
        """Results that were run."""
        return self.agrees + self.better + self.worse

    @property
    def listed(self) -> int:
        """Results, each once."""
        return self.run + self.waiting


def count(tables: Sequence[TableStanding]) -> Count:
    """Counts the verdicts. Accounting and repeats are counted apart."""
    cells = [one for table in tables for one in table.cells]
    found = [one.verdict for one in cells if one.cell.kind == "result"]
    shapes = [one.verdict for one in cells if one.cell.kind == "accounting"]
    claims = [one for table in tables for one in table.claims]
    return Count(
        agrees=found.count("agrees"),
        better=found.count("better"),
        worse=found.count("worse") + found.count("differs"),
        waiting=found.count(None),
        pairs=tally(pair.outcome for table in tables for pair in table.pairs),
        claims=tally(one.outcome for one in claims if one.claim.of == "paper"),
        own=tally(one.outcome for one in claims if one.claim.of == "ours"),
        accounting=(len(shapes), shapes.count("agrees")),
        repeats=sum(one.cell.kind == "repeat" for one in cells),
        excluded=sum(out.cells for table in tables for out in table.table.excluded),
    )


def tally(outcomes: Iterable[Outcome | None]) -> Tally:
    """Counts outcomes."""
    found = list(outcomes)
    return Tally(found.count("holds"), found.count("reversed"), found.count("open"), found.count(None))
