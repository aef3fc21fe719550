"""Findings on a model's scores, for the page and the console.

Scores of rows with their classes come from scores.csv of a run, or from a file of predictions and one of labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.common.data.formats.csv_file import CsvFile
from colonnade.common.data.known_sets.catalogue import refuse_unusable
from colonnade.common.errors import DataError, InputError, nearest
from colonnade.common.run.json_text import is_number
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.text import plain
from colonnade.reports.console.summary import positive_of
from colonnade.reports.records.run import RecordedRun, is_party, read_run
from colonnade.reports.words import counted
from colonnade.server.member.scores import HEADER
from colonnade.server.training.metrics import gains
from colonnade.server.training.metrics.bands import (
    FEWEST_SHOWN,
    Bands,
    Bools,
    CutOffOutcome,
    Disparities,
    Floats,
    bands,
    disparities,
    shift,
)

_ID = "id"
_P = "p_"  # of a class's column in a file of predictions


@dataclass(frozen=True)
class RowScores:
    """Rows with their scores.

    Args:
        scores: log-odds of the second class, float64 (rows,).
        probabilities: the second class's, recalibrated if predictions are.
        bad: True for rows of the second class; None if classes are unknown.
    """

    ids: tuple[str, ...]
    scores: Floats
    probabilities: Floats
    bad: Bools | None


@dataclass(frozen=True)
class Cells:
    """A CSV file of text, commas or semicolons between its cells.

    Args:
        rows: the number of each row in the file.
    """

    table: CsvFile
    columns: Mapping[str, Sequence[str]]
    rows: Sequence[int]

    @classmethod
    def read(cls, path: Path) -> Cells:
        """Reads a file. Raises DataError if it is missing, empty, ragged or not UTF-8."""
        refuse_unusable(path)
        with path.open(encoding="utf-8", errors="replace") as lines:
            first = lines.readline()
        table = CsvFile.headed(path, ";" if ";" in first and "," not in first else ",")
        columns: dict[str, list[str]] = {name: [] for name in table.header}
        for batch in table.batches(table.header):
            for name, column in zip(table.header, batch.columns, strict=True):
                columns[name] += column.to_pylist()
        return cls(table, columns, range(len(columns[table.header[0]])))

    def column(self, name: str) -> Sequence[str]:
        if name not in self.columns:
            raise DataError(
                f"{self.table} has no column {name!r}{nearest(name, self.columns)}",
                hint=f"its columns are {', '.join(list(self.columns)[:8])}",
            )
        return self.columns[name]

    def refuse_twice(self, ids: Sequence[str]) -> None:
        """Raises DataError with the line of the first id that has occurred before."""
        seen = set[str]()
        for id, row in zip(ids, self.rows, strict=True):
            if id in seen:
                raise DataError(f"{self.table.place(row)}: the id {id!r} occurs twice", hint="leave one line of it")
            seen.add(id)

    def numbers(self, name: str, low: float = -np.inf, high: float = np.inf) -> Floats:
        """Finite numbers, from `low` to `high`. Raises DataError with the line."""
        cells = self.column(name)
        try:
            found = np.array(cells, dtype=np.float64)
        except ValueError:
            found = np.array([_number(cell) for cell in cells])
        wrong = np.flatnonzero(~(np.isfinite(found) & (found >= low) & (found <= high)))
        if len(wrong):
            where = self.table.place(self.rows[wrong[0]])
            raise DataError(f"{where}: {name} is {cells[wrong[0]]!r}", hint="mend the line")
        return found


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def read_scores(path: Path, positive: str) -> dict[str, RowScores]:
    """The rows of scores.csv by part; `positive` is the second class."""
    cells = Cells.read(path)
    for name in HEADER:
        cells.column(name)
    parts, classes, ids = (np.array(cells.column(name), dtype=str) for name in ("part", "class", "id"))
    scores, probabilities = cells.numbers("score"), cells.numbers("probability", 0, 1)
    found = {}
    for part in dict.fromkeys(parts.tolist()):
        here = parts == part
        bad = None if (classes[here] == "").any() else classes[here] == positive
        found[part] = RowScores(tuple(ids[here].tolist()), scores[here], probabilities[here], bad)
    return found


def read_predictions(path: Path, labels: Mapping[str, str], positive: str, of: str) -> tuple[RowScores, int]:
    """The predicted rows of a file that `colonnade predict` wrote.

    Args:
        labels: the class of each id, from the file `of`.

    Returns:
        The rows, and the number of ids without a prediction, which some member does not know.

    Raises DataError for an id that occurs twice or has no label, or a label outside the two classes.
    """
    cells = Cells.read(path)
    names = [name.removeprefix(_P) for name in cells.columns if name.startswith(_P)]
    if len(names) != 2 or positive not in names:
        raise DataError(
            f"{path}: expected the columns id, class and p_.. of two classes, one of them {positive!r}",
            hint="give --scores a file that `colonnade predict` has written for this run",
        )
    cells.refuse_twice(cells.column(_ID))
    known = [row for row, cell in enumerate(cells.column(_P + positive)) if cell]
    unknown = len(cells.rows) - len(known)
    columns = {name: [column[row] for row in known] for name, column in cells.columns.items()}
    cells = Cells(cells.table, columns, known)
    probabilities = cells.numbers(_P + positive, 0, 1)
    ids = tuple(cells.column(_ID))
    said = [labels.get(id) for id in ids]
    for row, label in enumerate(said):
        if label not in names:
            what = f"there is no label in {of}" if label is None else f"its label in {of} is {label!r}"
            raise DataError(
                f"{cells.table.place(cells.rows[row])}: id {ids[row]!r}: {what}",
                hint=f"expected {names[0]!r} or {names[1]!r} for every id that was predicted",
            )
    inside = probabilities.clip(1e-12, 1 - 1e-12)
    bad = np.array([label == positive for label in said], dtype=bool)
    return RowScores(ids, np.log(inside / (1 - inside)), probabilities, bad), unknown


def by_id(given: str, option: str, key: str) -> dict[str, str]:
    """A column by id, of FILE:COLUMN.

    Args:
        key: the server's name for its column of ids; `id` is another.

    Raises DataError if an id occurs twice.
    """
    file, colon, name = given.rpartition(":")
    if not colon or not file or not name:
        raise InputError(f"{option} {given}: expected FILE:COLUMN", hint=f"as in {option} clients.csv:region")
    cells = Cells.read(Path(file))
    values = cells.column(name)
    ids = cells.column(key if key in cells.columns else _ID)
    cells.refuse_twice(ids)
    return {id: value.strip() for id, value in zip(ids, values, strict=True)}


OTHERS = "(none)"
"""The group of people of whom the file of groups says nothing."""


@dataclass(frozen=True)
class ScoreScale:
    """The displayed score: the probability of a bad, or a scorecard's points, where more is better.

    Args:
        points, odds, pdo: odds of `odds` goods to a bad have `points`, and `pdo` more points double the odds; all 0 for
            probabilities.
    """

    pdo: float = 0.0
    points: float = 0.0
    odds: float = 0.0

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> ScoreScale:
        """The scale of a configuration's protocol."""
        found = [tree.get(name) for name in ("pdo", "points", "odds")]
        return cls(*map(float, found)) if all(map(is_number, found)) else cls()  # type: ignore[arg-type]

    @property
    def factor(self) -> float:
        return self.pdo / math.log(2)

    @property
    def offset(self) -> float:
        return self.points - self.factor * math.log(self.odds)

    @property
    def name(self) -> str:
        return "points" if self.pdo else "probability"

    def risk(self, rows: RowScores) -> Floats:
        """Higher for likelier bads: probabilities, or negative points."""
        return self.factor * rows.scores - self.offset if self.pdo else rows.probabilities

    def shown(self, risk: Floats) -> Floats:
        return -risk if self.pdo else risk

    def say(self, risk: float) -> str:
        return f"{-risk:.0f}" if self.pdo else f"{risk:.4f}"

    def cut(self, given: float) -> float:
        """The least risk that is refused: points below the cut-off, probabilities from it on."""
        return float(np.nextafter(-given, np.inf)) if self.pdo else given


@dataclass(frozen=True)
class ScoreFindings:
    """Findings on the rows of one part.

    Args:
        part: test, validation, or the name of a file.
        cut_off: a risk, and its origin in words.
        before: part with which the scores are compared, and the index with its quantile by chance; None without one.
        notes: remarks on the file of groups.
        own: True for the run's own scores, which are of its model; a file's may be of another.
        left_out: rows of the file of predictions that are not among `rows`; "" for none.
    """

    run: RecordedRun
    part: str
    bad: str
    scale: ScoreScale
    rows: RowScores
    cut_off: tuple[float, str]
    before: tuple[str, tuple[float, float]] | None
    groups: Disparities | None
    notes: tuple[str, ...]
    left_out: str = ""
    own: bool = True

    @cached_property
    def risk(self) -> Floats:
        return self.scale.risk(self.rows)

    @property
    def bads(self) -> Bools:
        assert self.rows.bad is not None  # refused by `find`
        return self.rows.bad

    @cached_property
    def bands(self) -> Bands:
        return bands(self.risk, self.bads)

    @cached_property
    def outcome(self) -> CutOffOutcome:
        return CutOffOutcome.of(self.risk, self.bads, self.cut_off[0])

    @cached_property
    def ks(self) -> tuple[float, float]:
        return gains.ks_at(self.risk, self.bads)

    def classes(self) -> tuple[Floats, Floats]:
        """The displayed scores of goods and of bads."""
        shown = self.scale.shown(self.risk)
        return shown[~self.bads], shown[self.bads]


def find(folder: Path, cut_off: float | None, groups: str, scores: Path | None, labels: str) -> ScoreFindings:
    """Reads a server's run folder, and files beside it.

    Args:
        cut_off: in the scale's unit; None for the run's own decision, else the place of KS among the validation or
            training rows, never among the measured rows.
        groups, labels: FILE:COLUMN, or "".
        scores: a file of predictions instead of the run's own scores.
    """
    if is_party(folder):
        raise InputError(
            f"{folder} is a party's own folder: scores are the server's", hint="`colonnade bins` shows a party's bins"
        )
    run = read_run(folder)
    federation, labelled = run.sections["federation"], run.sections["server"].get("labels") or {}
    positive, named = _positive(run, federation), labelled.get("key") or labelled.get("id")
    key = named if isinstance(named, str) else "id"  # a key of several columns is one text in the run's own files
    own, part, protocol = RunFolder(folder).scores, "", federation.get("protocol")
    scale, left_out = ScoreScale.of(protocol) if isinstance(protocol, Mapping) else ScoreScale(), ""
    parts = read_scores(own, positive) if own.exists() else {}
    if scores is not None:
        if not labels:
            raise InputError(f"--scores {scores}: the classes of its ids are needed too", hint="--labels FILE:COLUMN")
        part = scores.name
        known = by_id(labels, "--labels", key)
        rows, unknown = read_predictions(scores, known, positive, labels.rpartition(":")[0])
        left_out = f"{counted(unknown, 'id')} of {scores} without a prediction" if unknown else ""
    else:
        part = next((name for name in ("test", "validation") if name in parts), "")
        if not part:
            raise InputError(f"{folder} keeps no scores of test or validation rows", hint=_without(run))
        rows = parts[part]
    _refuse_unranked(part, rows, positive)
    before = next((name for name in ("train", "validation") if name in parts and name != part), "")
    index = shift(scale.risk(parts[before]), scale.risk(rows)) if before else None
    chosen_by = next((name for name in ("validation", "train") if name in parts and name != part), part)
    at = _cut_off(run, scale, rows, cut_off, (chosen_by, parts.get(chosen_by, rows)))
    named, notes = (None, []) if not groups else _groups(by_id(groups, "--groups", key), rows, groups)
    found = None if named is None else disparities(named, scale.risk(rows), rows.bad, at[0])  # type: ignore[arg-type]
    return ScoreFindings(
        run, part, positive, scale, rows, at, index and (before, index), found, tuple(notes), left_out, scores is None
    )


def _positive(run: RecordedRun, federation: Mapping[str, Any]) -> str:
    """The second of two classes. Raises InputError for a regression, and for more classes."""
    classes, numbers = federation.get("classes"), federation.get("task") == "regression" or run.summary.get("targets")
    count = len(classes) if isinstance(classes, list) else classes
    if numbers or (count != 2 and count is not None):
        what = "predicts numbers" if numbers else f"has {count} classes"
        raise InputError(
            f"{run.folder}: the run {what}, and a scorecard is of two classes", hint="`colonnade report` reads any run"
        )
    found = positive_of(run.summary) or (classes[1] if isinstance(classes, list) else None)
    if found is None:
        raise InputError(f"{run.folder}: the run does not say which class is the second", hint="it may not have ended")
    return str(found)


def _without(run: RecordedRun) -> str:
    if run.summary["status"] != "completed":
        return "they are written when a run with test or validation rows ends"
    return (
        "it was made by an earlier version, or has none of these rows: predict, then name the file: "
        "--scores predictions.csv --labels FILE:COLUMN"
    )


def _refuse_unranked(part: str, rows: RowScores, positive: str) -> None:
    count, bad = len(rows.ids), rows.bad
    if bad is None:
        raise InputError(f"the classes of the {part} rows are not known", hint="name them: --scores, --labels")
    if not 0 < bad.sum() < count:
        which = f"are {positive!r}" if count and bad.all() else f"lack the class {positive!r}"
        raise InputError(
            f"all {counted(count, f'{part} row')} {which}: KS, gain and cut-offs need both classes",
            hint="give more test rows (federation.rows.test), or --scores and --labels of more people",
        )
    if not np.ptp(rows.scores):
        raise InputError(
            f"all {counted(count, f'{part} row')} have the same score, {plain(rows.probabilities[0])}: nothing can be "
            "ranked",
            hint="the model has learned nothing: see `colonnade report`",
        )


def _cut_off(
    run: RecordedRun, scale: ScoreScale, rows: RowScores, given: float | None, chosen_by: tuple[str, RowScores]
) -> tuple[float, str]:
    risk = scale.risk(rows)
    if given is not None:
        low, high = sorted(scale.shown(np.array([risk.min(), risk.max()])).tolist())
        if not low <= given <= high:
            raise InputError(
                f"--cut-off {given:g}: the {scale.name if scale.pdo else 'probabilities'} of these rows lie between "
                f"{plain(low)} and {plain(high)}",
                hint="choose one in between",
            )
        return scale.cut(given), "as given"
    if (decision := run.summary.get("decision")) and not scale.pdo:
        return float(decision["threshold"]), "the run's decision"
    part, others = chosen_by
    if others is rows or others.bad is None or not 0 < others.bad.sum() < len(others.ids):
        part, others = "these", rows
    assert others.bad is not None
    words = {"train": "the training", "validation": "the validation"}.get(part, "these")
    return gains.ks_at(scale.risk(others), others.bad)[1], f"where KS of {words} rows is reached"


def _groups(known: Mapping[str, str], rows: RowScores, given: str) -> tuple[list[str], list[str]]:
    """The group of every row, and notes on ids that only one side knows."""
    unknown = sum(id not in known for id in rows.ids)
    if unknown == len(rows.ids):
        raise InputError(
            f"--groups {given}: none of its ids is among the {counted(unknown, 'row')} with scores",
            hint="its ids are written as in the server's table",
        )
    named = [known.get(id) or OTHERS for id in rows.ids]
    notes = []
    if OTHERS in named:
        notes.append(f"rows without a group in {given} are the group {OTHERS}")
    if (beside := len(known) - (len(rows.ids) - unknown)) > 0:
        notes.append(f"{counted(beside, 'id')} of {given} have no score here and are left out")
    return named, notes


def suppressed_words(found: Disparities) -> list[str]:
    """The groups that are not shown, and why."""
    said = []
    if found.small:
        said.append(f"Not shown, of fewer than {FEWEST_SHOWN} people: {', '.join(found.small)}.")
    if found.beside:
        said.append(f"Not shown, since those could be computed from it and the totals: {', '.join(found.beside)}.")
    return said
