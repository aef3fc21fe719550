"""Pages about where we stand: one a paper, with pictures of every table, and one that sums up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.common.runtime.environment import describe_environment
from colonnade.reports.console.outputs import write_text
from colonnade.reproduction.pages.pictures import Picture, pictures
from colonnade.reproduction.papers.measures import unit
from colonnade.reproduction.papers.paper_comparison import CellStanding, TableStanding, count, with_all
from colonnade.reproduction.papers.papers import Paper

_WIRE = "processes over the wire, so that bytes count evaluations, and what the wire adds"
_MARKS = {True: "reached", False: "**short**", None: ""}


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
        lines += ["| paper | reached | short | not run yet | left out |", "|---|---|---|---|---|"]
        for name, paper in self.papers.items():
            found = count(self.standings[name])
            said = paper.cite if self.quick else f"[{paper.cite}]({name}.md)"
            lines.append(f"| {said} | {found.reached} | {found.short} | {found.waiting} | {found.excluded} |")
        if self.quick:
            for name in self.papers:
                lines += ["", f"## {self.papers[name].cite}", "", *_paragraph(self.papers[name].note)]
                for table in self.standings[name]:
                    lines += [*_claims(table), *_paragraph(_note(table))]
        return "\n".join([*lines, ""])

    def _how(self) -> str:
        command = "colonnade reproduce --quick" if self.quick else "colonnade reproduce"
        clock = _WIRE if self.wire else "the virtual clock: the same code, without a network"
        system = describe_environment()
        return (
            f"Written by `{command} --seeds {self.seeds}` ({clock}; {system['system']}, torch {system['torch']}). "
            "A cell is reached if the mean of its seeds is within a point of the paper, or better; deviations between "
            "classes within a quarter of a point, bytes and seconds within a hundredth, or less, and half of the last "
            "digit that the paper prints is allowed for. A claim is reached if the mean of its first run is ahead of "
            "all others', within the slack that it names. What a paper compares itself with may be better here than "
            "there and counts as reached then: cells do not say whether the paper's order holds."
        )

    def _page(self, name: str, drawn: Mapping[str, Sequence[Picture]]) -> str:
        paper = self.papers[name]
        lines = [f"# {paper.cite}", "", *_paragraph(paper.note), self._how(), ""]
        lines += [total_words(self.standings[name], self.seeds), ""]
        for standing in self.standings[name]:
            lines += [f"## {_named(standing.name)}: {standing.table.title}", ""]
            lines += _cells(standing.cells)
            lines += _claims(standing)
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


def total_words(tables: Sequence[TableStanding], seeds: int) -> str:
    """Number of cells reached, and of those with so many seeds, in a sentence or two."""
    found, whole = count(tables), with_all(tables, seeds)
    done = found.reached + found.short
    few = f" {whole} of the {done} that were run have all {seeds} seeds yet, the others fewer." if whole < done else ""
    share = f" ({found.reached / done:.0%} of what was run)" if done else ""
    return (
        f"{found.reached} of {found.listed} listed cells reached{share}, {found.short} short, {found.waiting} not run "
        f"yet; {found.excluded} cells of the papers are left out, for the reasons given with them.{few}"
    )


def _cells(cells: Sequence[CellStanding]) -> list[str]:
    if not cells:
        return []
    lines = ["| | | the paper | ours | seeds | |", "|---|---|---|---|---|---|"]
    for one in cells:
        sign = unit(one.cell.measure)
        lines.append(
            f"| {one.cell.row} | {one.cell.column} | {one.paper_words} {sign} | {one.words} | {len(one.ours)} | "
            f"{_MARKS[one.reached]} |"
        )
    return [*lines, ""]


def _claims(standing: TableStanding) -> list[str]:
    if not standing.claims:
        return []
    lines = ["| what it says | measured | seeds | |", "|---|---|---|---|"]
    for each in standing.claims:
        lines.append(f"| {each.claim.text} | {each.words} | {each.seeds} | {_MARKS[each.reached]} |")
    return [*lines, ""]


def _note(standing: TableStanding) -> str:
    """Note of the table, or a remark that shortfalls have no explanation."""
    return standing.table.note or ("Of what is short here no reason was found yet." if standing.short else "")


def _paragraph(said: str) -> list[str]:
    return [said, ""] if said else []


def _named(table: str) -> str:
    """`table3` as Table 3, `figures3to5` as Figures 3 to 5."""
    return " ".join(re.findall(r"[0-9]+|[^0-9]+", table)).capitalize()
