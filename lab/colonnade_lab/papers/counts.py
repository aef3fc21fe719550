"""Counts of three kinds: results compared with the paper's values, the paper's orders, and its claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from colonnade_lab.papers.intervals import Outcome
from colonnade_lab.papers.measures import Verdict
from colonnade_lab.papers.paper_comparison import TableStanding


@dataclass(frozen=True)
class Tally:
    """Numbers of orders that hold, lack the stated lead, are reversed, are open, or have not been run."""

    holds: int
    short: int
    reversed: int
    open: int
    waiting: int

    @property
    def listed(self) -> int:
        return self.holds + self.short + self.reversed + self.open + self.waiting

    @property
    def words(self) -> str:
        """`12 hold, 3 are reversed, 2 open`."""
        said = [f"{self.holds} {'holds' if self.holds == 1 else 'hold'}"]
        said += [f"{self.short} {'is' if self.short == 1 else 'are'} not reached"] if self.short else []
        said += [f"{self.reversed} {'is' if self.reversed == 1 else 'are'} reversed", f"{self.open} open"]
        said += [f"{self.waiting} not run yet"] if self.waiting else []
        return ", ".join(said)


@dataclass(frozen=True)
class Verdicts:
    """Numbers of results by verdict; `differs` counts those where neither direction is better."""

    agrees: int
    better: int
    worse: int
    differs: int
    undecided: int
    waiting: int

    @property
    def listed(self) -> int:
        return self.agrees + self.better + self.worse + self.differs + self.undecided + self.waiting

    @property
    def words(self) -> str:
        """`12 agree with the paper, 3 are better, 2 worse, 20 undecided`."""
        said = [
            f"{self.agrees} {'agrees' if self.agrees == 1 else 'agree'} with the paper",
            f"{self.better} {'is' if self.better == 1 else 'are'} better",
            f"{self.worse} worse",
        ]
        said += [f"{self.differs} {'differs' if self.differs == 1 else 'differ'} otherwise"] if self.differs else []
        said += [f"{self.undecided} undecided"]
        said += [f"{self.waiting} not run yet"] if self.waiting else []
        return ", ".join(said)


@dataclass(frozen=True)
class Count:
    """Verdicts of tables.

    Args:
        proposals: results of the papers' own methods.
        others: results of the methods that the papers compare with.
        pairs: orders of results that the paper separates.
        claims: of the paper; `own` counts ours, beyond the paper.
        settings: claims that one of our settings decides.
        accounting: cells that follow from shapes, and how many of them agree.
        repeats: cells that are printed elsewhere too.
        excluded: cells that are not run.
    """

    proposals: Verdicts
    others: Verdicts
    pairs: Tally
    claims: Tally
    own: Tally
    settings: int
    accounting: tuple[int, int]
    repeats: int
    excluded: int

    @property
    def listed(self) -> int:
        """Number of results, each counted once."""
        return self.proposals.listed + self.others.listed


def count(tables: Sequence[TableStanding]) -> Count:
    """Counts the verdicts, with accounting and repeats apart."""
    cells = [one for table in tables for one in table.cells]
    results = [one for one in cells if one.cell.kind == "result"]
    shapes = [one.verdict for one in cells if one.cell.kind == "accounting"]
    claims = [one for table in tables for one in table.claims]
    return Count(
        proposals=_verdicts(one.verdict for one in results if one.proposal),
        others=_verdicts(one.verdict for one in results if not one.proposal),
        pairs=tally(pair.outcome for table in tables for pair in table.pairs),
        claims=tally(one.outcome for one in claims if one.claim.of == "paper"),
        own=tally(one.outcome for one in claims if one.claim.of == "ours"),
        settings=sum(one.claim.of == "setting" for one in claims),
        accounting=(len(shapes), shapes.count("agrees")),
        repeats=sum(one.cell.kind == "repeat" for one in cells),
        excluded=sum(out.cells for table in tables for out in table.table.excluded),
    )


def tally(outcomes: Iterable[Outcome | None]) -> Tally:
    found = list(outcomes)
    counted = (found.count(each) for each in ("holds", "not reached", "reversed", "open", None))
    return Tally(*counted)


def _verdicts(verdicts: Iterable[Verdict | None]) -> Verdicts:
    found = list(verdicts)
    counted = (found.count(each) for each in ("agrees", "better", "worse", "differs", "undecided", None))
    return Verdicts(*counted)
