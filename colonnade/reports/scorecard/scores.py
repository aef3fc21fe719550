"""Scores of rows with their classes: scores.csv of a run, or a file of predictions beside one of labels."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.common.data.known_sets.places import refuse_unusable
from colonnade.common.errors import DataError, InputError, nearest
from colonnade.server.member.scores import HEADER
from colonnade.server.training.metrics.bands import Bools, Floats

_ID = "id"
_P = "p_"  # of a class's column in a file of predictions


@dataclass(frozen=True)
class RowScores:
    """Rows with their scores.

    Args:
        scores: log-odds of the second class, float64 (rows,).
        probabilities: of the same, recalibrated where predictions are.
        bad: True for rows of it; None if their classes are not known.
    """

    ids: tuple[str, ...]
    scores: Floats
    probabilities: Floats
    bad: Bools | None


@dataclass(frozen=True)
class Cells:
    """A CSV file of text, commas or semicolons between its cells.

    Args:
        lines: the line of each row in the file, of which quoted cells may take several.
    """

    path: Path
    columns: Mapping[str, Sequence[str]]
    lines: Sequence[int]

    @classmethod
    def read(cls, path: Path) -> Cells:
        """Raises DataError for a file that is missing, empty, ragged or no UTF-8."""
        refuse_unusable(path)
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                first = file.readline()
                file.seek(0)
                reader = csv.reader(file, delimiter=";" if ";" in first and "," not in first else ",")
                header, rows, lines = next(reader, []), [], []
                for row in filter(None, reader):
                    if len(row) != len(header):
                        raise DataError(
                            f"{path}, line {reader.line_num}: {len(row)} values for the {len(header)} columns of the "
                            "header",
                            hint="mend the line",
                        )
                    rows.append(row)
                    lines.append(reader.line_num)
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path} cannot be read: {error}", hint="give a CSV file in UTF-8") from error
        columns = zip(*rows, strict=True) if rows else [() for _ in header]
        return cls(path, dict(zip(header, columns, strict=True)), lines)

    def column(self, name: str) -> Sequence[str]:
        if name not in self.columns:
            raise DataError(
                f"{self.path} has no column {name!r}{nearest(name, self.columns)}",
                hint=f"its columns are {', '.join(list(self.columns)[:8])}",
            )
        return self.columns[name]

    def numbers(self, name: str, low: float = -np.inf, high: float = np.inf) -> Floats:
        """Finite numbers, from `low` to `high`. Raises DataError with the line."""
        cells = self.column(name)
        try:
            found = np.array(cells, dtype=np.float64)
        except ValueError:
            found = np.array([_number(cell) for cell in cells])
        wrong = np.flatnonzero(~(np.isfinite(found) & (found >= low) & (found <= high)))
        if len(wrong):
            line = self.lines[wrong[0]]
            raise DataError(f"{self.path}, line {line}: {name} is {cells[wrong[0]]!r}", hint="mend the line")
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


def read_predictions(path: Path, labels: Mapping[str, str], positive: str, of: str) -> RowScores:
    """The rows of a file that `colonnade predict` wrote, as far as they were predicted.

    Args:
        labels: the class of each id, from the file `of`.

    Raises DataError for an id without a label, or a label that is none of the two classes.
    """
    cells = Cells.read(path)
    names = [name.removeprefix(_P) for name in cells.columns if name.startswith(_P)]
    if len(names) != 2 or positive not in names:
        raise DataError(
            f"{path}: expected the columns id, class and p_.. of two classes, one of them {positive!r}",
            hint="give --scores a file that `colonnade predict` has written for this run",
        )
    known = [row for row, cell in enumerate(cells.column(_P + positive)) if cell]
    cells = Cells(path, {name: [column[row] for row in known] for name, column in cells.columns.items()},
                  [cells.lines[row] for row in known])  # fmt: skip
    probabilities = cells.numbers(_P + positive, 0, 1)
    ids = tuple(cells.column(_ID))
    said = [labels.get(id) for id in ids]
    for row, label in enumerate(said):
        if label not in names:
            what = f"there is no label in {of}" if label is None else f"its label in {of} is {label!r}"
            raise DataError(
                f"{path}, line {cells.lines[row]}: id {ids[row]!r}: {what}",
                hint=f"expected {names[0]!r} or {names[1]!r} for every id that was predicted",
            )
    inside = probabilities.clip(1e-12, 1 - 1e-12)
    bad = np.array([label == positive for label in said], dtype=bool)
    return RowScores(ids, np.log(inside / (1 - inside)), probabilities, bad)


def by_id(given: str, option: str, key: str) -> dict[str, str]:
    """A column by id, of FILE:COLUMN.

    Args:
        option: its name, for errors.
        key: the server's name for its column of ids; `id` is another.

    Raises DataError if an id occurs twice.
    """
    file, colon, name = given.rpartition(":")
    if not colon or not file or not name:
        raise InputError(f"{option} {given}: expected FILE:COLUMN", hint=f"as in {option} clients.csv:region")
    cells = Cells.read(Path(file))
    values = cells.column(name)
    ids = cells.column(key if key in cells.columns else _ID)
    found: dict[str, str] = {}
    for id, value, line in zip(ids, values, cells.lines, strict=True):
        if id in found:
            raise DataError(f"{file}, line {line}: the id {id!r} occurs twice", hint="leave one line of it")
        found[id] = value.strip()
    return found
