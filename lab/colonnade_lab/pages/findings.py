"""Files each sentence of the summary: under its own heading if the results support it, otherwise as open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from colonnade_lab.pages.markdown import markdown
from colonnade_lab.papers.intervals import Outcome, Seeds, interval, paired, ratios
from colonnade_lab.papers.measures import possible, unit, value
from colonnade_lab.papers.paper_comparison import (
    CellStanding,
    ClaimStanding,
    Find,
    TableStanding,
    difference_unit,
    without_mean,
)
from colonnade_lab.papers.papers import FindingSentence, Paper, Placeholder, fill, placeholders

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


_TITLES: Mapping[Kind, tuple[str, str]] = {
    "held": ("What held", "Said to hold"),
    "failed": ("What did not hold", "Said not to hold"),
    "new": ("What is new", "Said to be new"),
}
"""The heading of a kind of sentence, and what stands behind one that is filed as open."""

_ANY = (-math.inf, math.inf)


@dataclass(frozen=True)
class Texts:
    """Texts of a paper's list; `find` returns the record of a run with a seed, `seeds` is the most that may exist."""

    paper: Paper
    standings: Sequence[TableStanding]
    find: Find
    seeds: int

    def filled(self, text: str) -> str:
        return fill(text, self._said)

    def complete(self, text: str) -> bool:
        runs = [run for place in placeholders(text) for run, _measure in place.values]
        return all(any(self.find(run, seed) for seed in range(self.seeds)) for run in runs)

    def _said(self, place: Placeholder) -> str:
        if place.table:
            return self._printed(place)
        seeds = [self._seeds(run, measure) for run, measure in place.values]
        measure = place.values[0][1]
        if place.sign == "-":
            return _words(paired(*seeds), difference_unit(measure), measure, _ANY)
        if place.sign == "/":
            return _words(ratios(*seeds), "times", measure, (0.0, math.inf))
        return _words(tuple(seeds[0].values()), unit(measure), measure, possible(measure))

    def _printed(self, place: Placeholder) -> str:
        cells = [one for table in self.standings if table.name == place.table for one in table.cells]
        one = next(cell for cell in cells if cell.label == place.label)
        return f"{one.paper_words} {unit(one.cell.measure)}".strip()

    def _seeds(self, run: str, measure: str) -> Seeds:
        records = {seed: self.find(run, seed) for seed in range(self.seeds)}
        return {seed: value(record, measure) for seed, record in records.items() if record is not None}


def findings(papers: Mapping[str, Texts]) -> str:
    """The sections, one per kind, with a link to the paper's page before each sentence.

    Sentences that the results do not decide, or contradict, have their own section, which also counts those that wait
    for runs.
    """
    sections: dict[str, list[str]] = {}
    undecided: list[str] = []
    settings: list[str] = []
    waiting = 0
    for kind, (title, filed) in _TITLES.items():
        lines = sections.setdefault(title, [])
        for name, texts in papers.items():
            for sentence in getattr(texts.paper.finding, kind):
                found = support(sentence, kind, texts.standings)
                if found.waiting or not texts.complete(sentence.text):
                    waiting += 1
                elif found.stands:
                    lines.append(_line(name, texts, sentence))
                else:
                    undecided.append(f"{_line(name, texts, sentence)} *{filed}; {found.words}.*")
    for name, texts in papers.items():
        wanted = texts.paper.finding.setting
        settings += [_line(name, texts, sentence) for sentence in wanted if texts.complete(sentence.text)]
    return markdown("findings.jinja", sections=sections, settings=settings, undecided=undecided, waiting=waiting)


def _line(name: str, texts: Texts, sentence: FindingSentence) -> str:
    return f"- [{texts.paper.called}]({name}.md): {texts.filled(sentence.text)}"


def _words(values: Sequence[float], sign: str, measure: str, ends: tuple[float, float]) -> str:
    """`97.2 % (97.0 to 97.4)`; the interval is cut at the measure's limits."""
    if without := without_mean(values, measure):
        return f"({without})"
    found = interval(values).within(*ends)
    digits = _digits(found.mean, sign)
    number, _, between = found.words(digits).partition(" ")
    return f"{number} {sign} {between}".strip().replace("  ", " ")


def _digits(number: float, sign: str) -> int:
    """One digit for per cent and points; three significant digits for others."""
    if sign in {"%", "points"} or not number:
        return 1
    return max(0, 2 - math.floor(math.log10(abs(number))))
