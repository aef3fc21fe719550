"""Values of the papers and our runs for them: experiments/papers/*.yaml, one file a paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from colonnade.common.errors import ConfigError, InputError, nearest
from colonnade.common.section import Section
from colonnade.reproduction.papers.lists import read_list
from colonnade.reproduction.papers.measures import Measure

FOLDER = Path(__file__).parents[2] / "experiments"

REASONS = {
    "data": "the data are not at hand",
    "gpu": "needs a GPU",
    "clock": "the virtual clock charges nothing for computing",
}
"""Why cells are left out, by the word that stands for it; any other is the reason itself."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


class PaperRun(Section):
    """A federation that is trained.

    Args:
        file: below experiments/.
        set: KEY=VALUE on top of it, as `--set` has them.
        minutes: about how long it takes on two cores.
    """

    file: str
    set: tuple[str, ...] = ()
    minutes: float = Field(gt=0)

    @property
    def path(self) -> Path:
        """The file itself."""
        return FOLDER / self.file


class Cell(Section):
    """A number of a table. `measure` names the measure of our run to compare; `spread` is the paper's own deviation."""

    row: str
    column: str
    paper: float
    spread: float | None = Field(default=None, ge=0)
    run: Name
    measure: Measure = "accuracy"


class Claim(Section):
    """Claim of a figure: the first run has less, or more, than every other. A point of slack is `within: 1`."""

    text: str
    fewer: dict[Name, Measure] = Field(default_factory=dict)
    more: dict[Name, Measure] = Field(default_factory=dict)
    within: float = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _one_of_two(self) -> Claim:
        if bool(self.fewer) == bool(self.more) or len(self.measures) < 2:
            raise ConfigError(f"claim {self.text!r}: expected two runs or more under one of fewer and more")
        return self

    @property
    def measures(self) -> Mapping[str, Measure]:
        """Compared measures, by run, the claim's winner first."""
        return self.fewer or self.more


class Excluded(Section):
    """Cells of the paper that are not run, and why."""

    what: str
    cells: int = Field(ge=1)
    why: str

    @property
    def reason(self) -> str:
        """In words."""
        return REASONS.get(self.why, self.why)

    @property
    def words(self) -> str:
        """All of it, the reason once: some say it in `what` already."""
        about = self.what if self.what.endswith(self.reason) else f"{self.what}: {self.reason}"
        return f"{self.cells} {'cell' if self.cells == 1 else 'cells'}, {about}"


class PaperTable(Section):
    """A table or a figure. `note` says what there is to say about cells that fall short."""

    title: str
    note: str = ""
    cells: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()
    excluded: tuple[Excluded, ...] = ()

    @property
    def runs(self) -> list[str]:
        """The names of all runs that it needs, each once."""
        named = [cell.run for cell in self.cells] + [run for claim in self.claims for run in claim.measures]
        return list(dict.fromkeys(named))


class Paper(Section):
    """One paper: its runs by name, and its tables by name, such as `table3`. `note` holds for all of its cells."""

    cite: str
    note: str = ""
    runs: dict[Name, PaperRun]
    tables: dict[Name, PaperTable]

    @model_validator(mode="after")
    def _known_runs(self) -> Paper:
        for name, table in self.tables.items():
            for run in table.runs:
                if run not in self.runs:
                    raise ConfigError(f"{name}: no run {run!r}{nearest(run, self.runs)}")
        if unused := set(self.runs) - {run for table in self.tables.values() for run in table.runs}:
            raise ConfigError(f"runs that no table names: {', '.join(sorted(unused))}")
        return self


def names(*, quick: bool = False) -> list[str]:
    """The papers that there are; the quick looks have files of their own."""
    return sorted(path.stem for path in _folder(quick=quick).glob("*.yaml"))


def read_paper(name: str, *, quick: bool = False) -> Paper:
    """One of them. Raises InputError if there is none of that name, ConfigError if its file is wrong."""
    known = names(quick=quick)
    if name not in known:
        raise InputError(f"no paper {name!r}{nearest(name, known)}", hint=f"there are {', '.join(known)}")
    return read_list(_folder(quick=quick) / f"{name}.yaml", Paper)


def chosen(which: str, *, quick: bool = False) -> Iterator[tuple[str, Paper]]:
    """The papers that PAPER or PAPER/TABLE names, with the requested tables alone; all for "".

    Raises:
        InputError: there is no such paper or table.
    """
    paper, _, table = which.partition("/")
    for name in [paper] if paper else names(quick=quick):
        whole = read_paper(name, quick=quick)
        yield name, _only(name, whole, table) if table else whole


def _only(name: str, paper: Paper, table: str) -> Paper:
    if table not in paper.tables:
        near, known = nearest(table, paper.tables), ", ".join(paper.tables)
        raise InputError(f"{name} has no {table!r}{near}", hint=f"there are {known}")
    kept = paper.tables[table]
    runs = {run: paper.runs[run] for run in kept.runs}
    return Paper(cite=paper.cite, note=paper.note, runs=runs, tables={table: kept})


def _folder(*, quick: bool) -> Path:
    return FOLDER / ("quick" if quick else "papers")
