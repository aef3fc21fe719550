"""Pages about where we stand: one a paper, with pictures of every table, and one that sums up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.reports.console.outputs import write_text
from colonnade.reproduction.pages.pictures import Picture, pictures
from colonnade.reproduction.pages.tables import cells, claims, orders
from colonnade.reproduction.pages.words import how, total_words
from colonnade.reproduction.papers.counts import count
from colonnade.reproduction.papers.paper_comparison import TableStanding
from colonnade.reproduction.papers.papers import Paper

_HEAD = (
    "paper", "agrees", "better", "worse", "not run yet", "order: holds / reversed / open",
    "claims: hold / reversed / open", "beyond the paper", "accounting that agrees", "repeats", "left out",
)  # fmt: skip


@dataclass(frozen=True)
class PaperPages:
    """Content of the pages.

    Args:
        papers: by name.
        standings: the tables of each.
        seeds: requested number.
        quick: whether these are the quick looks.
        wire: whether runs were processes over the wire.
    """

    papers: Mapping[str, Paper]
    standings: Mapping[str, Sequence[TableStanding]]
    seeds: int
    quick: bool = False
    wire: bool = False

    def write(self, folder: Path) -> list[Path]:
        """Writes them all. Raises EnvironmentFault if the disk refuses.

        Returns:
            What was written, the page that sums up first.
        """
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
        lines = [f"# {title}", "", self._how(), "", total_words(everything, self.seeds), ""]
        lines += [f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
        lines += [self._row(name) for name in self.papers]
        if self.quick:
            for name in self.papers:
                lines += ["", f"## {self.papers[name].cite}", "", *_paragraph(self.papers[name].note)]
                for table in self.standings[name]:
                    lines += [*claims(table), *_paragraph(_note(table))]
        return "\n".join([*lines, ""])

    def _row(self, name: str) -> str:
        """The counts of a paper."""
        found, cite = count(self.standings[name]), self.papers[name].cite
        orders_of = [f"{each.holds} / {each.reversed} / {each.open}" for each in (found.pairs, found.claims, found.own)]
        cells_of = [found.agrees, found.better, found.worse, found.waiting]
        shapes = f"{found.accounting[1]} of {found.accounting[0]}"
        said = [
            cite if self.quick else f"[{cite}]({name}.md)",
            *cells_of,
            *orders_of,
            shapes,
            found.repeats,
            found.excluded,
        ]
        return f"| {' | '.join(map(str, said))} |"

    def _how(self) -> str:
        return how(self.seeds, quick=self.quick, wire=self.wire)

    def _page(self, name: str, drawn: Mapping[str, Sequence[Picture]]) -> str:
        paper = self.papers[name]
        lines = [f"# {paper.cite}", "", *_paragraph(paper.note), self._how(), ""]
        lines += [total_words(self.standings[name], self.seeds), ""]
        for standing in self.standings[name]:
            lines += [f"## {_named(standing.name)}: {standing.table.title}", ""]
            lines += _paragraph(_stand_in(standing))
            lines += [*cells(standing.cells), *orders(standing), *claims(standing)]
            for picture in drawn[standing.name]:
                lines += [f"![{_named(standing.name)}{picture.about}]({picture.file})", ""]
            lines += _paragraph(_note(standing))
            lines += [f"- left out: {out.words}" for out in standing.table.excluded]
            lines += [""] if standing.table.excluded else []
        return "\n".join([*lines, *self._runs(paper), ""])

    @staticmethod
    def _runs(paper: Paper) -> list[str]:
        lines = ["## What was run", "", "| run | configuration | changed |", "|---|---|---|"]
        for name, run in paper.runs.items():
            changed = "<br>".join(f"`{each}`" for each in run.set)
            lines.append(f"| {name} | `experiments/{run.file}` | {changed} |")
        return lines


def _stand_in(standing: TableStanding) -> str:
    """Which data set was replaced by which."""
    return f"**Stand-in:** {standing.table.stand_in}" if standing.table.stand_in else ""


def _note(standing: TableStanding) -> str:
    """Note of the table, or a remark that shortfalls have no explanation."""
    return standing.table.note or ("Of what is short here no reason was found yet." if standing.short else "")


def _paragraph(said: str) -> list[str]:
    return [said, ""] if said else []


def _named(table: str) -> str:
    """`table3` as Table 3, `figures3to5` as Figures 3 to 5."""
    return " ".join(re.findall(r"[0-9]+|[^0-9]+", table)).capitalize()
