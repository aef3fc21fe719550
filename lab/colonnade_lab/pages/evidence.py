"""Files each sentence of the summary: under its own heading if the results support it, otherwise as open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from colonnade_lab.papers.intervals import Outcome
from colonnade_lab.papers.paper_comparison import CellStanding, ClaimStanding, TableStanding
from colonnade_lab.papers.papers import FindingSentence

Kind = Literal["held", "failed", "new"]


@dataclass(frozen=True)
class Support:
    """Numbers of the claims and cells that a sentence rests on, by what the results say of it."""

    supports: int
    contradicts: int
    open: int
    waiting: int

    @property
    def stands(self) -> bool:
        """True if no result contradicts the sentence or leaves it open."""
        return not self.contradicts and not self.open and not self.waiting

    @property
    def words(self) -> str:
        """`of the 3 claims or cells it rests on 1 supports it and 2 are open`."""
        counted = {
            ("supports it", "support it"): self.supports,
            ("contradicts it", "contradict it"): self.contradicts,
            ("is open", "are open"): self.open,
        }
        total = sum(counted.values())
        said = [
            f"{number} {one if number == 1 else several}" if total > 1 else one
            for (one, several), number in counted.items()
            if number
        ]
        *most, last = said
        together = f"{', '.join(most)} and {last}" if most else last
        return f"of the {total} claims or cells it rests on {together}" if total > 1 else f"what it rests on {together}"


def support(sentence: FindingSentence, kind: Kind, tables: Sequence[TableStanding]) -> Support:
    """Counts what the results say of a sentence filed under this heading.

    Under `failed`, a claim of the paper or a cell supports the sentence if it is reversed or not reached. Claims of
    ours, and everything under the other headings, support it if they hold.
    """
    found = [_supports(named, kind, tables) for named in sentence.rests_on]
    against = found.count("reversed") + found.count("not reached")
    return Support(found.count("holds"), against, found.count("open"), found.count(None))


def agreement(cell: CellStanding) -> Outcome | None:
    """Outcome of the statement that the paper's value is met, from the cell's verdict. None without runs."""
    verdict = cell.verdict
    if verdict is None:
        return None
    return {"agrees": "holds", "undecided": "open"}.get(verdict, "reversed")  # type: ignore[return-value]


def _supports(named: str, kind: Kind, tables: Sequence[TableStanding]) -> Outcome | None:
    table, _, label = named.partition(": ")
    found = _named(label, next(one for one in tables if one.name == table))
    outcome = found.outcome if isinstance(found, ClaimStanding) else agreement(found)
    ours = isinstance(found, ClaimStanding) and found.claim.of == "ours"
    if kind != "failed" or ours or outcome in {"open", None}:
        return outcome
    return "reversed" if outcome == "holds" else "holds"


def _named(label: str, table: TableStanding) -> ClaimStanding | CellStanding:
    claim = next((one for one in table.claims if one.claim.text == label), None)
    return claim or next(one for one in table.cells if one.label == label)
