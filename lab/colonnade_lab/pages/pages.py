"""Pages of the reproduction: one per paper, with pictures of every table, and a summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.common.run.environment import describe_environment
from colonnade.reports.console.outputs import write_text
from colonnade_lab.pages.counts import count, outcomes, total_words
from colonnade_lab.pages.findings import Texts, findings
from colonnade_lab.pages.markdown import markdown
from colonnade_lab.pages.pictures import pictures
from colonnade_lab.papers.paper_comparison import Find, TableStanding
from colonnade_lab.papers.papers import Paper

_MOST = 16  # seeds of a value in a text


@dataclass(frozen=True)
class PaperPages:
    """Content of the pages.

    Args:
        quick: whether these are the quick looks.
        find: returns, by paper, the record of a run with a seed, for values in texts.
        made: maps a paper's name and its run to what produced the results.
        introduction: the summary's first paragraph.
    """

    papers: Mapping[str, Paper]
    standings: Mapping[str, Sequence[TableStanding]]
    seeds: int
    quick: bool = False
    find: Mapping[str, Find] = field(default_factory=dict)
    made: Callable[[str, str], Sequence[str]] = lambda _paper, _run: ()
    introduction: str = ""

    def write(self, folder: Path) -> list[Path]:
        pages = {"quick" if self.quick else "index": self._summary()}
        for name in () if self.quick else self.papers:
            drawn = {table.name: tuple(pictures(name, table)) for table in self.standings[name]}
            for picture in (each for several in drawn.values() for each in several):
                write_text(folder / picture.file, picture.text)
            pages[name] = markdown(
                "paper.jinja", paper=self.papers[name], standings=self.standings[name], pictures=drawn,
                how=self._how(), total=self._total(name), filled=self._texts(name).filled,
                order=lambda one: outcomes(pair.outcome for pair in one.pairs),
                made=lambda run, name=name: self.made(name, run),
            )  # fmt: skip
        for name, text in pages.items():
            write_text(folder / f"{name}.md", text)
        return [folder / f"{name}.md" for name in pages]

    def _summary(self) -> str:
        rows = []
        for name, paper in self.papers.items():
            authors = re.match(r".*?[0-9]{4}|.*", paper.cite)
            title = paper.cite if self.quick or authors is None else f"[{paper.called}]({name}.md), {authors[0]}"
            rows.append((title, count(self.standings[name])))
        return markdown(
            "index.jinja", quick=self.quick, introduction=self.introduction, total=self._total(*self.papers),
            rows=rows, papers=self.papers, standings=self.standings, how=self._how(),
            filled=lambda name, text: self._texts(name).filled(text),
            findings="" if self.quick else findings({name: self._texts(name) for name in self.papers}),
        )  # fmt: skip

    def _texts(self, name: str) -> Texts:
        paper, find = self.papers[name], self.find.get(name, lambda _run, _seed: None)
        return Texts(paper, self.standings[name], find, max(self.seeds, _MOST))

    def _total(self, *names: str) -> str:
        """Counts of these papers' tables, and how long their stored runs took, if there are any."""
        total = total_words([table for name in names for table in self.standings[name]], self.seeds)
        kept = [
            record
            for name in names
            if (find := self.find.get(name)) is not None
            for run in self.papers[name].runs
            for seed in range(self.seeds)
            if (record := find(run, seed)) is not None
        ]
        hours = sum(record.wall for record in kept) / 3600
        return f"{total} The {len(kept)} stored runs took {hours:.1f} hours of one core.".strip() if kept else total

    def _how(self) -> str:
        return markdown("how.jinja", seeds=self.seeds, quick=self.quick, system=describe_environment())
