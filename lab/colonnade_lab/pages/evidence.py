"""Where a sentence of the summary stands: where its list files it, if the results say so, and otherwise under open."""

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
    """What the results say of a sentence.

    Args:
        supports, contradicts, open, waiting: numbers of the claims and cells that it rests on.
    """

    supports: int
    contradicts: int
    open: int
    waiting: int

    @property
    def stands(self) -> bool:
        """True if nothing that it rests on says otherwise or leaves it open."""
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
    """What the results say of a sentence that is filed under this heading.

    A claim of the paper and a cell support what held if they hold, and what failed if they are reversed or not reached;
    a claim of ours supports what failed, and what is new, if it holds.
    """
    found = [_supports(named, kind, tables) for named in sentence.rests_on]
    against = found.count("reversed") + found.count("not reached")
    return Support(found.count("holds"), against, found.count("open"), found.count(None))


def agreement(cell: CellStanding) -> Outcome | None:
    """The statement that the paper's value is met, by the cell's verdict. None if nothing was run yet."""
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
