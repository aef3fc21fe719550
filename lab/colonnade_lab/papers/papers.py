"""YAML lists of runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from colonnade.common.data.known_sets.catalogue import KNOWN
from colonnade.common.errors import ConfigError, InputError, nearest
from colonnade.common.parsing.yaml_tree import override, read_tree
from colonnade.common.section import Section
from colonnade.launcher.demo import EXPERIMENTS
from colonnade_lab.papers.measures import Better, Measure, better_of, decimals, known_measure, slack

_Listed = TypeVar("_Listed", bound=Section)


class Printed(float):
    """A number of a list that keeps its decimal digits: 95.00 has two."""

    digits: int = 0


def refuse_all_but_every(known: Collection[str], named: list[str]) -> None:
    """Refuses a plan of all protocols whose entries and reasons for absence do not name each of them once."""
    if unknown := next((name for name in named if name not in known), None):
        raise ConfigError(f"{unknown!r} is no protocol{nearest(unknown, known)}")
    if lost := [name for name in known if named.count(name) != 1]:
        raise ConfigError(
            f"every protocol once, under protocols or left_out; missing or twice: {', '.join(lost)}",
            hint="give it an entry under protocols, or a reason under left_out",
        )


class _ListLoader(yaml.SafeLoader):
    """Keeps the digits of numbers."""


def _printed(loader: _ListLoader, node: yaml.ScalarNode) -> float:
    number = Printed(loader.construct_yaml_float(node))
    number.digits = len(node.value.partition("e")[0].partition(".")[2])
    return number


_ListLoader.add_constructor("tag:yaml.org,2002:float", _printed)


def read_list(path: Path, kind: type[_Listed]) -> _Listed:
    tree: Any = yaml.load(path.read_text(encoding="utf-8"), _ListLoader)  # noqa: S506  # a SafeLoader
    try:
        return kind.model_validate(tree)
    except ConfigError as wrong:
        raise ConfigError(f"{path}: {wrong}", hint=wrong.hint) from None
    except ValidationError as invalid:
        first = invalid.errors()[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


_OURS = r"([a-z0-9_]+)\.([a-z_]+(?:@[a-z0-9_.]+)?)"
_THEIRS = r"paper ([a-z0-9_]+): ([^{}]+)"
_PLACE = re.compile(r"\{(?:" + _THEIRS + "|" + _OURS + r"(?: ([-/]) " + _OURS + r")?)\}")
_TYPED = re.compile(r"\d[\d.,]*\s*(%|points?\b|[MKG]i?B\b|seconds\b|s\b|times\b)")


@dataclass(frozen=True)
class Placeholder:
    """A placeholder in a text: a cell of the paper, or run and measure of one value or of two, with - or / between."""

    table: str = ""
    label: str = ""
    values: tuple[tuple[str, str], ...] = ()
    sign: str = ""


def placeholders(text: str) -> Iterator[Placeholder]:
    return (_read(found) for found in _PLACE.finditer(text))


def fill(text: str, said: Callable[[Placeholder], str]) -> str:
    return _PLACE.sub(lambda found: said(_read(found)), text)


def typed(text: str) -> str:
    """First measured number that the text has outside of placeholders; "" if there is none."""
    found = _TYPED.search(_PLACE.sub("", text))
    return found[0] if found else ""


def _read(found: re.Match[str]) -> Placeholder:
    table, label, run, measure, sign, other, second = found.groups()
    if table:
        return Placeholder(table, label.strip())
    values = ((run, measure), (other, second)) if sign else ((run, measure),)
    return Placeholder(values=values, sign=sign or "")


PLANS = Path(__file__).parents[1] / "plans"

REASONS = {
    "data": "the data set is not to be had",
    "gpu": "needs a GPU",
    "budget": "costs more than the runs' stated budget",
    "repeat": "printed elsewhere too",
    "cited": "others' numbers, which the paper cites",
    "picture": "no numbers are printed",
}
"""Why cells are left out, by the word that stands for it; any other is the reason itself."""

_FREE = {"data", "cited", "picture"}  # need no account of a trial
_COST = re.compile(r"ResNet|VGG|CNN|LeNet|GPU|hour|minute", re.IGNORECASE)
_PRINTED = {"adult": {"uci", "census"}, "credit-default": {"credit"}, "mfeat": {"handwritten"}, "scene15": {"scene-15"}}

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]


class PaperRun(Section):
    """A federation that is trained.

    Args:
        file: below experiments/.
        set: KEY=VALUE on top of it, as for `--set`.
        minutes: approximate duration on two cores.
    """

    file: str
    set: tuple[str, ...] = ()
    minutes: float = Field(gt=0)

    @property
    def path(self) -> Path:
        return EXPERIMENTS / self.file

    @property
    def protocol(self) -> str:
        return _protocol(self.path, tuple(each for each in self.set if each.startswith("federation.protocol")))


class Cell(Section):
    """A number of a table.

    Args:
        spread: the paper's own deviation.
        kind: `accounting` follows from shapes, not from learning (bytes per round); `repeat` is printed elsewhere too.
            Neither counts as a result, nor does a `shown` cell: a setting was fitted to it, a setting that is ours and
            not the paper's decides it, or it is the largest class's share.
        better: better direction, by default the measure's; with `neither` only agreement counts.
        whose: `proposal` is the paper's own method, `other` one that it compares with; default: by the run's protocol.
        group: orders compare only cells of one group; default: the data set that the row begins with.
        digits: decimals that the paper prints; default: as written in the list.
    """

    row: str
    column: str
    paper: float
    spread: float | None = Field(default=None, ge=0)
    run: Name
    measure: Measure = "accuracy"
    kind: Literal["result", "accounting", "repeat", "shown"] = "result"
    better: Better | None = None
    whose: Literal["proposal", "other"] | None = None
    group: str = ""
    digits: int = Field(default=-1, ge=-1, le=6)

    @model_validator(mode="before")
    @classmethod
    def _with_digits(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "digits" in given:
            return given
        paper = given.get("paper")
        if isinstance(paper, Printed):
            return {**given, "digits": paper.digits}
        return {**given, "digits": decimals(paper)} if isinstance(paper, int | float) else given

    @property
    def direction(self) -> Better:
        return self.better or better_of(self.measure)

    @property
    def slack(self) -> float:
        return slack(self.paper, self.measure, self.digits)

    @property
    def label(self) -> str:
        return f"{self.row}, {self.column}" if self.column else self.row

    @property
    def kin(self) -> str:
        first, comma, _ = self.row.partition(", ")
        return self.group or (first if comma and listed_set(first) else "")


class Claim(Section):
    """Claim of a figure: the first run has less, or more, than every other.

    Args:
        fewer, more: the measure of every run, the one that should be ahead first.
        within: how far it may be behind.
        by: how far it must be ahead.
        of: whose claim it is. Ours go beyond the paper, and count separately. `setting` is a claim of the paper that a
            setting of ours decides: it is shown, and says nothing about the paper.
    """

    text: str
    fewer: dict[Name, Measure] = Field(default_factory=dict)
    more: dict[Name, Measure] = Field(default_factory=dict)
    within: float = Field(default=0, ge=0)
    by: float = Field(default=0, ge=0)
    of: Literal["paper", "ours", "setting"] = "paper"

    @model_validator(mode="after")
    def _one_of_two(self) -> Claim:
        if bool(self.fewer) == bool(self.more) or len(self.measures) < 2:
            raise ConfigError(f"claim {self.text!r}: expected two runs or more under one of fewer and more")
        if self.within and self.by:
            raise ConfigError(f"claim {self.text!r}: expected one of within and by")
        return self

    @property
    def measures(self) -> Mapping[str, Measure]:
        """Compared measures by run, the expected winner first."""
        return self.fewer or self.more

    @property
    def least(self) -> float:
        return self.by - self.within


class Excluded(Section):
    """Cells of the paper that are not run.

    Args:
        why: a word of REASONS, or the reason.
        tried: what was run and with which result; for `gpu` the model or estimated hours, for `repeat` where else it
            is.
    """

    what: str
    cells: int = Field(ge=1)
    why: str
    tried: str = ""

    @model_validator(mode="after")
    def _tried(self) -> Excluded:
        if self.why == "data" and (at_hand := [word for word in _words(self.what) if listed_set(word)]):
            raise ConfigError(
                f"left out, {self.what!r}: the data set is not to be had, but {at_hand[0]} is in the catalogue",
                hint="run these cells, or give another reason",
            )
        if self.why == "gpu" and not _COST.search(f"{self.what} {self.tried}"):
            raise ConfigError(
                f"left out, {self.what!r}: tried: name the model that needs a GPU, or the estimated hours"
            )
        if self.why not in _FREE and self.why != "gpu" and len(self.tried.split()) < 2:
            raise ConfigError(f"left out, {self.what!r}: tried: missing; say what was run and what came of it")
        return self

    @property
    def reason(self) -> str:
        return REASONS.get(self.why, self.why)

    @property
    def words(self) -> str:
        """All of it, without repeating a reason that `what` already gives."""
        about = self.what if self.what.endswith(self.reason) else f"{self.what}: {self.reason}"
        said = f"{self.cells} {'cell' if self.cells == 1 else 'cells'}, {about}"
        return f"{said} ({self.tried.rstrip('.')})" if self.tried else said


@cache
def _protocol(path: Path, changes: tuple[str, ...]) -> str:
    tree = read_tree(path)
    for change in changes:
        override(tree, change)
    found = tree["federation"]["protocol"]
    return str(found["name"] if isinstance(found, dict) else found)


def listed_set(name: str) -> bool:
    """True if the catalogue has a data set of this name in papers."""
    said = name.strip().lower()
    return said in KNOWN or any(said in others for others in _PRINTED.values()) or said.replace("-", "") in KNOWN


def _words(said: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9-]+", said)


class PaperTable(Section):
    """A table or a figure.

    Args:
        note: why cells fall short.
        stand_in: the data set that was replaced, and its replacement.
        order: which pairs of cells are compared with the paper's order: those of one column, of one row, or both.
    """

    title: str
    note: str = ""
    stand_in: str = ""
    order: Literal["columns", "rows", "both", "none"] = "columns"
    cells: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()
    excluded: tuple[Excluded, ...] = ()

    @property
    def runs(self) -> list[str]:
        named = [cell.run for cell in self.cells] + [run for claim in self.claims for run in claim.measures]
        return list(dict.fromkeys(named))


class FindingSentence(Section):
    """A sentence of a finding.

    Measured values are placeholders, so that they are never typed by hand: `{run.measure}`, or `{run.measure -
    run.measure}` for a difference paired by seed.

    Args:
        rests_on: the claims (`TABLE: TEXT`) and cells (`TABLE: ROW, COLUMN`) whose outcomes decide where it is filed.
    """

    text: str
    rests_on: tuple[str, ...] = ()


class Finding(Section):
    """A paper in short: what held, what failed, what our settings decide rather than the paper, and what is new."""

    held: tuple[FindingSentence, ...] = ()
    failed: tuple[FindingSentence, ...] = ()
    setting: tuple[FindingSentence, ...] = ()
    new: tuple[FindingSentence, ...] = ()

    @property
    def sentences(self) -> tuple[FindingSentence, ...]:
        return self.held + self.failed + self.setting + self.new

    @model_validator(mode="after")
    def _decided(self) -> Finding:
        for sentence in self.held + self.failed:
            if not sentence.rests_on and "](" not in sentence.text:
                hint = "name claims and cells under rests_on, or link the page that argues it"
                raise ConfigError(f"finding {sentence.text!r}: no result decides it", hint=hint)
        return self


class Paper(Section):
    """One paper.

    Args:
        cite: authors, year, title.
        proposals: protocols of this package that are the paper's own method.
        note: holds for all of its cells.
        tables: by name, such as `table3`.
    """

    cite: str
    called: str = ""
    proposals: tuple[str, ...] = ()
    note: str = ""
    finding: Finding = Finding()
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

    @model_validator(mode="after")
    def _known_places(self) -> Paper:
        sentences = [sentence.text for sentence in self.finding.sentences]
        for sentence in sentences:
            if found := typed(sentence):
                hint = "write {RUN.MEASURE} or {paper TABLE: ROW, COLUMN} in its place"
                raise ConfigError(f"finding {sentence!r}: {found!r} is typed", hint=hint)
        for text in (*sentences, self.note, *(table.note for table in self.tables.values())):
            for place in placeholders(text):
                self._refuse_unknown(place)
        return self

    @model_validator(mode="after")
    def _known_evidence(self) -> Paper:
        """A claim of ours cannot count as held by the paper, and one of the paper is nothing new."""
        for kind in ("held", "failed", "new"):
            for sentence in getattr(self.finding, kind):
                for evidence in sentence.rests_on:
                    found = self.evidence(evidence)
                    ours = isinstance(found, Claim) and found.of == "ours"
                    if (kind == "held" and ours) or (kind == "new" and not ours):
                        whose = "beyond the paper" if ours else "the paper's"
                        raise ConfigError(f"finding {sentence.text!r}, under {kind}: {evidence!r} is {whose}")
        return self

    def proposed(self, cell: Cell) -> bool:
        return cell.whose == "proposal" if cell.whose else self.runs[cell.run].protocol in self.proposals

    def evidence(self, named: str) -> Claim | Cell:
        """The claim or cell that `TABLE: TEXT` or `TABLE: ROW, COLUMN` names."""
        table, _, label = named.partition(": ")
        if table not in self.tables:
            raise ConfigError(f"rests_on {named!r}: no table {table!r}{nearest(table, self.tables)}")
        found: dict[str, Claim | Cell] = {cell.label: cell for cell in self.tables[table].cells}
        found |= {claim.text: claim for claim in self.tables[table].claims}
        if label not in found:
            raise ConfigError(f"rests_on {named!r}: no such claim or cell{nearest(label, found)}")
        return found[label]

    def _refuse_unknown(self, place: Placeholder) -> None:
        for run, measure in place.values:
            if run not in self.runs:
                raise ConfigError(f"{{{run}.{measure}}}: no run {run!r}{nearest(run, self.runs)}")
            known_measure(measure)
        if place.table:
            labels = [cell.label for cell in self.tables[place.table].cells] if place.table in self.tables else []
            if place.label not in labels:
                raise ConfigError(f"{{paper {place.table}: {place.label}}}: no such cell{nearest(place.label, labels)}")


def names(*, quick: bool = False) -> list[str]:
    return sorted(path.stem for path in _folder(quick=quick).glob("*.yaml"))


def read_paper(name: str, *, quick: bool = False) -> Paper:
    """Reads a paper's list. Raises InputError if there is none, ConfigError if it is invalid."""
    known = names(quick=quick)
    if name not in known:
        raise InputError(f"no paper {name!r}{nearest(name, known)}", hint=f"there are {', '.join(known)}")
    return read_list(_folder(quick=quick) / f"{name}.yaml", Paper)


def chosen(which: str, *, quick: bool = False) -> Iterator[tuple[str, Paper]]:
    """Papers selected by PAPER or PAPER/TABLE, reduced to the requested tables; all for ""."""
    paper, _, table = which.partition("/")
    for name in [paper] if paper else names(quick=quick):
        whole = read_paper(name, quick=quick)
        yield name, _only(name, whole, table) if table else whole


def introduction() -> str:
    return " ".join((_folder(quick=False) / "introduction.txt").read_text(encoding="utf-8").split())


def _only(name: str, paper: Paper, table: str) -> Paper:
    if table not in paper.tables:
        near, known = nearest(table, paper.tables), ", ".join(paper.tables)
        raise InputError(f"{name} has no {table!r}{near}", hint=f"there are {known}")
    kept = paper.tables[table]
    runs = {run: paper.runs[run] for run in kept.runs}
    return paper.model_copy(update={"finding": Finding(), "runs": runs, "tables": {table: kept}})


def _folder(*, quick: bool) -> Path:
    return PLANS / ("quick" if quick else "papers")
