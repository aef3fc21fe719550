"""Texts of the lists with the results filled in, and the page's sections on what held, what failed and what is new.

A sentence stands under its own heading only if the results support it; all others are collected as open.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from colonnade_lab.pages.evidence import Kind, support
from colonnade_lab.papers.intervals import Seeds, interval, paired, ratios
from colonnade_lab.papers.measures import possible, unit, value
from colonnade_lab.papers.paper_comparison import Find, TableStanding, without_mean
from colonnade_lab.papers.papers import Paper
from colonnade_lab.papers.placeholders import Placeholder, fill, placeholders

_SECTIONS: Mapping[Kind, str] = {"held": "What held", "failed": "What did not hold", "new": "What is new"}
_FILED: Mapping[Kind, str] = {"held": "Said to hold", "failed": "Said not to hold", "new": "Said to be new"}
_ANY = (-math.inf, math.inf)
_SETTINGS = (
    "Numbers that differ from the paper's where our setting is not the paper's. They say nothing of the paper; runs "
    "in its setting are still to be made."
)
_OPEN = (
    "Sentences of the lists that the seeds do not decide yet, or that the results contradict. A claim with fewer than "
    "two seeds is open."
)


@dataclass(frozen=True)
class Texts:
    """Texts of a paper's list; `find` returns the record of a run with a seed, `seeds` is the most that may exist."""

    paper: Paper
    standings: Sequence[TableStanding]
    find: Find
    seeds: int

    def filled(self, text: str) -> str:
        """Replaces every placeholder by its value."""
        return fill(text, self._said)

    def complete(self, text: str) -> bool:
        """True if every value of the text was measured."""
        runs = [run for place in placeholders(text) for run, _measure in place.values]
        return all(any(self.find(run, seed) for seed in range(self.seeds)) for run in runs)

    def _said(self, place: Placeholder) -> str:
        if place.table:
            return self._printed(place)
        seeds = [self._seeds(run, measure) for run, measure in place.values]
        measure = place.values[0][1]
        if place.sign == "-":
            sign = unit(measure)
            return _words(paired(*seeds), "points" if sign == "%" else sign, measure, _ANY)
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


def findings(papers: Mapping[str, Texts]) -> Iterator[str]:
    """Yields lines of the sections, one per kind, with a link to the paper's page before each sentence.

    Sentences that the results do not decide, or contradict, have their own section, which also counts those that wait
    for runs.
    """
    undecided: list[str] = []
    waiting = 0
    for kind, title in _SECTIONS.items():
        lines: list[str] = []
        for name, texts in papers.items():
            for sentence in getattr(texts.paper.finding, kind):
                found = support(sentence, kind, texts.standings)
                line = f"- [{texts.paper.called}]({name}.md): {texts.filled(sentence.text)}"
                if found.waiting or not texts.complete(sentence.text):
                    waiting += 1
                elif found.stands:
                    lines.append(line)
                else:
                    undecided.append(f"{line} *{_FILED[kind]}; {found.words}.*")
        if lines:
            yield from (f"## {title}", "", *lines, "")
    yield from _settings(papers)
    if undecided or waiting:
        yield from ("## What is open", "", *_open(undecided, waiting), "")


def _settings(papers: Mapping[str, Texts]) -> Iterator[str]:
    """Yields lines about what our own settings decide."""
    lines = [
        f"- [{texts.paper.called}]({name}.md): {texts.filled(sentence.text)}"
        for name, texts in papers.items()
        for sentence in texts.paper.finding.setting
        if texts.complete(sentence.text)
    ]
    if lines:
        yield from ("## What our settings decide", "", _SETTINGS, "", *lines, "")


def _open(undecided: Sequence[str], waiting: int) -> Iterator[str]:
    if undecided:
        yield from (_OPEN, "", *undecided)
    if undecided and waiting:
        yield ""
    if waiting:
        yield f"{waiting} {'sentence waits' if waiting == 1 else 'sentences wait'} for runs."


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
