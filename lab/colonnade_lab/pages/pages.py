"""Pages of the reproduction: one per paper, with pictures of every table, and a summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.reports.console.outputs import write_text
from colonnade_lab.pages.counts import cells, claims, count, how, orders, total_words
from colonnade_lab.pages.findings import Texts, findings
from colonnade_lab.pages.pictures import Picture, pictures
from colonnade_lab.papers.paper_comparison import Find, TableStanding
from colonnade_lab.papers.papers import Paper

_HEAD = (
    "paper", "its own method: agrees / better / worse / differs / undecided", "others: likewise", "not run yet",
    "order: holds / reversed / open", "claims: hold / not reached / reversed / open", "beyond the paper",
    "accounting that agrees", "repeats", "left out",
)  # fmt: skip
_MADE = (
    "A result is kept as long as its configuration is the same. *Made by* is the version of Colonnade that made it, "
    "and a digest of the code that results depend on; results of before 0.2.0 have no digest."
)
_MOST = 16  # seeds of a value in a text


@dataclass(frozen=True)
class PaperPages:
    """Content of the pages.

    Args:
        quick: whether these are the quick looks.
        wire: whether runs were processes over the wire.
        find: returns, by paper, the record of a run with a seed, for values in texts.
        made: maps a paper's name and its run to what produced the results.
        introduction: the summary's first paragraph.
    """

    papers: Mapping[str, Paper]
    standings: Mapping[str, Sequence[TableStanding]]
    seeds: int
    quick: bool = False
    wire: bool = False
    find: Mapping[str, Find] = field(default_factory=dict)
    made: Callable[[str, str], Sequence[str]] = lambda _paper, _run: ()
    introduction: str = ""

    def write(self, folder: Path) -> list[Path]:
        written = [self._write(folder / f"{'quick' if self.quick else 'index'}.md", self._summary())]
        for name in () if self.quick else self.papers:
            drawn = {table.name: tuple(pictures(name, table)) for table in self.standings[name]}
            for picture in (each for several in drawn.values() for each in several):
                self._write(folder / picture.file, picture.text)
            written.append(self._write(folder / f"{name}.md", self._page(name, drawn)))
        return written

    @staticmethod
    def _write(path: Path, text: str) -> Path:
        write_text(path, text)
        return path

    def _summary(self) -> str:
        everything = [table for tables in self.standings.values() for table in tables]
        title = "The papers' claims, at a glance" if self.quick else "The papers' tables, and ours"
        counted = f"{total_words(everything, self.seeds)} {self._cost(*self.papers)}".strip()
        lines = [f"# {title}", "", *_paragraph(self.introduction), counted, ""]
        lines += [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
        lines += [*(self._row(name) for name in self.papers), ""]
        lines += [] if self.quick else findings({name: self._texts(name) for name in self.papers})
        lines += ["## How to read it", "", self._how()]
        if self.quick:
            for name in self.papers:
                lines += [
                    "",
                    f"## {self.papers[name].cite}",
                    "",
                    *_paragraph(self._filled(name, self.papers[name].note)),
                ]
                for table in self.standings[name]:
                    lines += [*claims(table), *_paragraph(self._filled(name, _note(table)))]
        return "\n".join([*lines, ""])

    def _row(self, name: str) -> str:
        found, cite = count(self.standings[name]), self.papers[name].cite
        claims_of = [_slashed(each.holds, each.short, each.reversed, each.open) for each in (found.claims, found.own)]
        cells_of = [
            _slashed(each.agrees, each.better, each.worse, each.differs, each.undecided)
            for each in (found.proposals, found.others)
        ]
        shapes = f"{found.accounting[1]} of {found.accounting[0]}"
        said = [
            cite if self.quick else f"[{self.papers[name].called}]({name}.md), {_authors(cite)}",
            *cells_of,
            found.proposals.waiting + found.others.waiting,
            _slashed(found.pairs.holds, found.pairs.reversed, found.pairs.open),
            *claims_of,
            shapes,
            found.repeats,
            found.excluded,
        ]
        return f"| {' | '.join(map(str, said))} |"

    def _texts(self, name: str) -> Texts:
        paper, find = self.papers[name], self.find.get(name, lambda _run, _seed: None)
        return Texts(paper, self.standings[name], find, max(self.seeds, _MOST))

    def _filled(self, name: str, text: str) -> str:
        return self._texts(name).filled(text)

    def _cost(self, *names: str) -> str:
        """A sentence on how long the stored runs of these papers took; "" if there are none."""
        kept = [
            record
            for name in names
            if (find := self.find.get(name)) is not None
            for run in self.papers[name].runs
            for seed in range(self.seeds)
            if (record := find(run, seed)) is not None
        ]
        hours = sum(record.wall for record in kept) / 3600
        return f"The {len(kept)} stored runs took {hours:.1f} hours of one core." if kept else ""

    def _how(self) -> str:
        return how(self.seeds, quick=self.quick, wire=self.wire)

    def _page(self, name: str, drawn: Mapping[str, Sequence[Picture]]) -> str:
        paper = self.papers[name]
        lines = [f"# {paper.cite}", "", *_paragraph(self._filled(name, paper.note)), self._how(), ""]
        lines += [f"{total_words(self.standings[name], self.seeds)} {self._cost(name)}".strip(), ""]
        for standing in self.standings[name]:
            lines += [f"## {_named(standing.name)}: {standing.table.title}", ""]
            lines += _paragraph(_stand_in(standing))
            lines += [*cells(standing.cells), *orders(standing), *claims(standing)]
            for picture in drawn[standing.name]:
                lines += [f"![{_named(standing.name)}{picture.about}]({picture.file})", ""]
            lines += _paragraph(self._filled(name, _note(standing)))
            lines += [f"- left out: {out.words}" for out in standing.table.excluded]
            lines += [""] if standing.table.excluded else []
        return "\n".join([*lines, *self._runs(name), ""])

    def _runs(self, paper: str) -> list[str]:
        lines = ["## What was run", "", _MADE, "", "| run | configuration | changed | made by |", "|---|---|---|---|"]
        for name, run in self.papers[paper].runs.items():
            changed = "<br>".join(f"`{each}`" for each in run.set)
            made = "<br>".join(self.made(paper, name))
            lines.append(f"| {name} | `experiments/{run.file}` | {changed} | {made} |")
        return lines


def _slashed(*numbers: int) -> str:
    return " / ".join(map(str, numbers))


def _authors(cite: str) -> str:
    found = re.match(r".*?[0-9]{4}", cite)
    return found[0] if found else cite


def _stand_in(standing: TableStanding) -> str:
    return f"**Stand-in:** {standing.table.stand_in}" if standing.table.stand_in else ""


def _note(standing: TableStanding) -> str:
    """The table's note, or a remark that shortfalls are unexplained."""
    return standing.table.note or ("Of what is short here no reason was found yet." if standing.short else "")


def _paragraph(said: str) -> list[str]:
    return [said, ""] if said else []


def _named(table: str) -> str:
    """`table3` as Table 3, `figures3to5` as Figures 3 to 5."""
    return " ".join(re.findall(r"[0-9]+|[^0-9]+", table)).capitalize()
