"""The Adult census as UCI serves it: adult.data has the training rows, adult.test the test rows, both without a header.

A number is one column. A word is one column of 0 and 1 for each word of its field, as adult.names lists them, so that
no width or encoding depends on rows. `?` is a missing value, 0 in all of them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.common.data.columns.features import Features, Matrix, TypedColumn
from colonnade.common.data.formats.unpack import opened
from colonnade.common.errors import ConfigError, DataError, nearest
from colonnade.common.run.files import state_of

CLASSES = ("<=50K", ">50K")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "age": (),
    "workclass": (
        "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay",
        "Never-worked",
    ),
    "fnlwgt": (),
    "education": (
        "Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th",
        "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool",
    ),
    "education-num": (),
    "marital-status": (
        "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
        "Married-AF-spouse",
    ),
    "occupation": (
        "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
        "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
        "Priv-house-serv", "Protective-serv", "Armed-Forces",
    ),
    "relationship": ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "capital-gain": (),
    "capital-loss": (),
    "hours-per-week": (),
    "native-country": (
        "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)",
        "India", "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland",
        "Jamaica", "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador",
        "Taiwan", "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia",
        "El-Salvador", "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands",
    ),
}  # fmt: skip
"""The fields of a line in order, each with its allowed words; none for numbers. The class comes after them."""

_FILES = ("adult.data", "adult.test")
_MISSING = "?"
_HINT = "get the original file again"


def census_file(folder: Path, name: str) -> Path | None:
    """A file of the set ("adult.data" or "adult.test"), packed or not; None if the folder has none."""
    paths = (folder / f"{name}{packed}" for packed in ("", ".gz", ".xz"))
    return next((path for path in paths if path.is_file()), None)


def holds(folder: Path) -> bool:
    return all(census_file(folder, name) for name in _FILES)


def read_columns(folder: Path, fields: Sequence[str] = ()) -> Matrix:
    """Fields of the census by name, all if none are given, as columns `age`, `sex=Female`, ..; adult.test last."""
    fields = tuple(fields) or tuple(FIELDS)
    _check(fields)
    training, test = (_cells(folder, name, fields) for name in _FILES)
    names = [name for field in fields for name in [f"{field}={word}" for word in FIELDS[field]] or [field]]
    return Matrix(torch.from_numpy(np.concatenate((training, test))), tuple(names), official_test=len(test))


def typed(columns: Features) -> Features:
    """The columns `sex=Female`, .. of a party as one column of words each, float64; missing where all of them are 0."""
    places = dict[str, dict[str, int]]()
    for place, name in enumerate(columns.names):
        field, _, word = name.partition("=")
        places.setdefault(field, {})[word] = place
    cells, fields = [], []
    for field, of in places.items():
        words = tuple(sorted(of))
        marks = columns.values[:, [of[word] for word in words]]
        if words == ("",):
            cells.append(marks[:, 0])
        else:
            cells.append(torch.where(marks.any(1), marks.argmax(1), torch.nan))
        fields.append(TypedColumn(field, None if words == ("",) else words))
    return replace(columns, values=torch.stack(cells, 1).double(), names=tuple(places), fields=tuple(fields))


def read_labels(folder: Path) -> tuple[Tensor, int]:
    """The classes of a folder's rows, (n,) int64, and the number of test rows among them."""
    parts = [_classes(folder, name) for name in _FILES]
    return torch.tensor([number for part in parts for number in part]), len(parts[-1])


def read_rows(folder: Path) -> tuple[tuple[str, ...], list[list[str]]]:
    """All lines as words, those of adult.test last: the columns' names and the cells, "" where one is missing."""
    rows = [cells for name in _FILES for _, cells in _lines(folder, name)]
    return (*FIELDS, "income"), [["" if cell == _MISSING else cell.removesuffix(".") for cell in row] for row in rows]


def _check(fields: Sequence[str]) -> None:
    for place, field in enumerate(fields):
        if field not in FIELDS:
            raise ConfigError(
                f"Adult has no column {field!r}{nearest(field, FIELDS)}", hint=f"its columns are {', '.join(FIELDS)}"
            )
        if field in fields[:place]:
            raise ConfigError(f"column {field!r} is listed twice", hint="list it once under `columns`")


def _lines(folder: Path, name: str) -> Iterator[tuple[str, list[str]]]:
    """Lines as (location for messages, cells): the fields and the class."""
    path = census_file(folder, name)
    if path is None:
        raise DataError(f"{folder} has no {name}", hint="put the file there")
    with opened(path) as stream:
        reader = csv.reader(io.TextIOWrapper(stream, "ascii", "replace"), skipinitialspace=True)
        for cells in reader:
            if not cells or cells[0].startswith("|"):
                continue  # the end, and the remark at the beginning of adult.test
            where = f"{path}, line {reader.line_num}"
            if len(cells) != len(FIELDS) + 1:
                raise DataError(f"{where}: {len(cells)} values instead of {len(FIELDS) + 1}", hint=_HINT)
            yield where, cells


def _cells(folder: Path, name: str, fields: tuple[str, ...]) -> np.ndarray:
    """The fields' columns, float64 (rows, columns), read-only; read again only if the file has changed."""
    path = census_file(folder, name)
    return _parsed(folder, name, fields, state_of(path.stat()) if path else ())


@lru_cache(maxsize=8)  # all members of a simulation are in one process, and take columns of the same fields
def _parsed(folder: Path, name: str, fields: tuple[str, ...], state: tuple[int, ...]) -> np.ndarray:  # noqa: ARG001
    places = [list(FIELDS).index(field) for field in fields]
    codes = [_codes(FIELDS[field]) for field in fields]
    rows = [
        [number for place, code in zip(places, codes, strict=True) for number in _coded(cells[place], code, where)]
        for where, cells in _lines(folder, name)
    ]
    if not rows:
        raise DataError(f"{folder}: {name} has no rows", hint=_HINT)
    cells = np.array(rows)
    cells.setflags(write=False)
    return cells


def _codes(words: Sequence[str]) -> Mapping[str, tuple[float, ...]]:
    """Column of every word of a field; empty for a number."""
    codes = {word: tuple(float(word == other) for other in words) for word in words}
    return {**codes, _MISSING: (0.0,) * len(words)} if words else {}


def _coded(cell: str, codes: Mapping[str, tuple[float, ...]], where: str) -> tuple[float, ...]:
    try:
        return codes[cell] if codes else (float(cell),)
    except (KeyError, ValueError):
        raise DataError(f"{where}: {cell!r} is no value of its column", hint=_HINT) from None


def _classes(folder: Path, name: str) -> list[int]:
    numbers = []
    for where, cells in _lines(folder, name):
        word = cells[-1].removesuffix(".")  # as in adult.test
        if word not in CLASSES:
            raise DataError(f"{where}: the class {word!r} is neither {' nor '.join(CLASSES)}", hint=_HINT)
        numbers.append(CLASSES.index(word))
    return numbers
