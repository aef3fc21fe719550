"""Counts of results, orders and claims, and how pages say them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from colonnade_lab.pages.markdown import markdown
from colonnade_lab.papers.intervals import Outcome
from colonnade_lab.papers.measures import Verdict
from colonnade_lab.papers.paper_comparison import TableStanding, with_all

Words = Mapping[str | None, tuple[str, str]]
"""How one result and several are said, in the order of the sentence."""

_VERDICTS: Words = {
    "agrees": ("agrees with the paper", "agree with the paper"), "better": ("is better", "are better"),
    "worse": ("worse", "worse"), "differs": ("differs otherwise", "differ otherwise"),
    "undecided": ("undecided", "undecided"), None: ("not run yet", "not run yet"),
}  # fmt: skip
_OUTCOMES: Words = {
    "holds": ("holds", "hold"), "not reached": ("is not reached", "are not reached"),
    "reversed": ("is reversed", "are reversed"), "open": ("open", "open"), None: ("not run yet", "not run yet"),
}  # fmt: skip
_RARE = ("differs", "not reached", None)  # which are not said of none


class Tally(Counter[str | None]):
    """Numbers of results by verdict, or of orders and claims by outcome; None counts what was not run."""

    def __init__(self, found: Iterable[str | None], said: Words) -> None:
        super().__init__(found)
        self._said = said

    @property
    def listed(self) -> int:
        return self.total()

    @property
    def words(self) -> str:
        """`12 hold, 3 are reversed, 2 open`."""
        said = self._said.items()
        return ", ".join(f"{self[key]} {one if self[key] == 1 else several}" for key, (one, several) in said
                         if self[key] or key not in _RARE)  # fmt: skip

    @property
    def slashed(self) -> str:
        return " / ".join(str(self[key]) for key in self._said if key is not None)


def outcomes(found: Iterable[Outcome | None]) -> Tally:
    return Tally(found, _OUTCOMES)


def verdicts(found: Iterable[Verdict | None]) -> Tally:
    return Tally(found, _VERDICTS)


@dataclass(frozen=True)
class Count:
    """Verdicts of tables.

    Args:
        proposals: results of the papers' own methods.
        others: results of the methods that the papers compare with.
        pairs: orders of results that the paper separates.
        claims: of the paper; `own` counts ours, beyond the paper.
        settings: claims that one of our settings decides.
        shapes: cells that follow from shapes.
        repeats: cells that are printed elsewhere too.
        excluded: cells that are not run.
    """

    proposals: Tally
    others: Tally
    pairs: Tally
    claims: Tally
    own: Tally
    settings: int
    shapes: Tally
    repeats: int
    excluded: int


def count(tables: Sequence[TableStanding]) -> Count:
    cells = [one for table in tables for one in table.cells]
    results = [one for one in cells if one.cell.kind == "result"]
    claims = [one for table in tables for one in table.claims]
    return Count(
        proposals=verdicts(one.verdict for one in results if one.proposal),
        others=verdicts(one.verdict for one in results if not one.proposal),
        pairs=outcomes(pair.outcome for table in tables for pair in table.pairs),
        claims=outcomes(one.outcome for one in claims if one.claim.of == "paper"),
        own=outcomes(one.outcome for one in claims if one.claim.of == "ours"),
        settings=sum(one.claim.of == "setting" for one in claims),
        shapes=verdicts(one.verdict for one in cells if one.cell.kind == "accounting"),
        repeats=sum(one.cell.kind == "repeat" for one in cells),
        excluded=sum(out.cells for table in tables for out in table.table.excluded),
    )


def total_words(tables: Sequence[TableStanding], seeds: int) -> str:
    done = sum(bool(one.ours) for table in tables for one in table.cells)
    done += sum(all(one.ours.values()) for table in tables for one in table.claims)
    return markdown("total.jinja", found=count(tables), whole=with_all(tables, seeds), done=done, seeds=seeds)
