"""Values that stand for a missing one, and codes, among numbers and dates: `check` and the run warn of them."""

from __future__ import annotations

import datetime
import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import yaml
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.columns.doubts import doubts
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import DataError

data, labels = (TypeAdapter(kind).validate_python for kind in (DataConfig, LabelConfig))
DRAWS = np.random.default_rng(5)
ROWS = 400
TEMPERATURES = DRAWS.normal(70, 10, ROWS).round(1).tolist()
AGES = DRAWS.integers(18, 90, ROWS).tolist()
YEARS = DRAWS.integers(1990, 2025, ROWS).tolist()
DAYS = [str(datetime.date(2020, 1, 1) + datetime.timedelta(days=int(day))) for day in DRAWS.integers(0, 900, ROWS)]
BIRTHS = [str(datetime.date(1930, 1, 1) + datetime.timedelta(days=int(day))) for day in DRAWS.integers(0, 27_000, ROWS)]


def write(folder: Path, column: list[Any], source: str) -> dict[str, Any]:
    """A table of keys and a column x; the section that reads it."""
    keys = [f"k{row}" for row in range(len(column))]
    path = folder / f"t.{source}"
    if source == "csv":
        path.write_text("id,x\n" + "".join(f"{key},{cell}\n" for key, cell in zip(keys, column, strict=True)))
    elif source == "sql":
        with sqlite3.connect(path) as database:
            database.execute("create table t (id text, x)")
            database.executemany("insert into t values (?, ?)", zip(keys, column, strict=True))
        return {"source": "sql", "url": f"sqlite:///{path}", "query": "select id, x from t order by rowid", "key": "id"}
    else:
        made = pa.table({"id": keys, "x": column})
        if source == "parquet":
            path.mkdir()
            for part, some in enumerate((made[:200], made[200:])):
                pa.parquet.write_table(some, path / f"{part}.parquet")
        else:
            pa.feather.write_feather(made, path)
    return {"source": source, "path": path.name, "key": "id"}


def said(folder: Path, section: dict[str, Any]) -> list[str]:
    return [str(doubt) for doubt in doubts(load_features(data(section), PartyIndex(0, 1), folder))]


def with_mark(column: list[Any], mark: Any, every: int, first: int = 7) -> list[Any]:
    return [mark if row % every == first else cell for row, cell in enumerate(column)]


NUMBERS = [
    (TEMPERATURES, -999, 10), (TEMPERATURES, -9999, 80), (TEMPERATURES, 999999, 150), (TEMPERATURES, -999.25, 9),
    (AGES, -1, 20), (AGES, 999, 100), (AGES, -99, 30), (YEARS, 0, 40), (AGES, -9, 50), (TEMPERATURES, 2147483647, 60),
    ([row % 5 + 1 for row in range(ROWS)], 99, 10), ([row % 2 for row in range(ROWS)], -999, 100),
    (DRAWS.normal(0, 5000, ROWS).round(2).tolist(), -999, 12), (TEMPERATURES, 12345, 40), (TEMPERATURES, 1e30, 90),
]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "mark", "every", "source"),
    [*((*case, "csv") for case in NUMBERS)]
    + [(*NUMBERS[at], source) for at, source in ((0, "parquet"), (4, "parquet"), (0, "arrow"), (2, "sql"), (4, "sql"))],
)
def test_a_mark_among_numbers_is_said_and_the_cure_cures(
    tmp_path: Path, column: list[Any], mark: Any, every: int, source: str
) -> None:
    column = with_mark(column, mark, every)
    if source in ("parquet", "arrow") and any(isinstance(cell, float) for cell in column):
        column = [float(cell) for cell in column]
    section = write(tmp_path, column, source)
    (found,) = said(tmp_path, section)
    count = sum(row % every == 7 for row in range(ROWS))
    assert f"in {count} of {ROWS} rows" in found
    assert re.search(r"first in .*(line 9|row 8)\)", found)
    cure = yaml.safe_load("{" + re.findall(r"`([^`]*)`", found)[-1] + "}")
    assert cure["missing"] == "mean"
    assert not said(tmp_path, section | cure)
    values = load_features(data(section | cure), PartyIndex(0, 1), tmp_path).values
    assert int(values.isnan().sum()) == count


@pytest.mark.parametrize(
    ("column", "mark", "written", "more"),
    [
        (pa.array(TEMPERATURES, pa.float32()), -9999.9, "-9999.9", {}),
        (pa.array(AGES, pa.int64()), 2**63 - 1, f"'{2**63 - 1}'", {"types": {"x": "number"}}),
        ([f"{age} %" for age in AGES], "-999 %", "-999", {"types": {"x": "percent"}}),
        ([f"€ {age}" for age in AGES], "€ 9999", "9999", {"units": {"x": "€"}}),
    ],
)
def test_a_mark_is_said_as_the_column_has_it_and_the_cure_cures(
    tmp_path: Path, column: Any, mark: Any, written: str, more: dict[str, Any]
) -> None:
    kind = column.type if isinstance(column, pa.Array) else pa.string()
    cells = with_mark(column.to_pylist() if isinstance(column, pa.Array) else column, mark, 20)
    section = write(tmp_path, pa.array(cells, kind), "arrow") | more
    (found,) = said(tmp_path, section)
    assert f"has {written.strip(chr(39))} in 20" in found
    assert f"`missing_values: [{written}], missing: mean`" in found
    assert not said(tmp_path, section | yaml.safe_load("{" + re.findall(r"`([^`]*)`", found)[-1] + "}"))


@pytest.mark.parametrize(("column", "mark"), [(DAYS, "1900-01-01"), (DAYS, "1970-01-01"), (DAYS, "9999-12-31"),
    (BIRTHS, "1970-01-01"), (BIRTHS, "1900-01-01"), (DAYS, "2099-12-31"), (DAYS, "0001-01-01")])  # fmt: skip
@pytest.mark.parametrize("kind", ["text", "date", "time", "german"])
def test_a_mark_among_dates_is_said_and_the_cure_cures(tmp_path: Path, column: list[str], mark: str, kind: str) -> None:
    cells: list[Any] = with_mark(column, mark, 20)
    days = [datetime.date.fromisoformat(cell) for cell in cells]
    more = {"types": {"x": "date %d.%m.%Y" if kind == "german" else "date"}}
    if kind == "german":
        cells = [f"{day.day:02}.{day.month:02}.{day.year:04}" for day in days]
    elif kind == "date":
        cells = days
    elif kind == "time":
        cells = [datetime.datetime(day.year, day.month, day.day) for day in days]
    section = write(tmp_path, cells, "csv" if kind in ("text", "german") else "parquet") | more
    (found,) = said(tmp_path, section)
    assert "in 20 of 400 rows" in found
    cure = yaml.safe_load("{" + re.findall(r"`([^`]*)`", found)[-1] + "}")
    assert not said(tmp_path, section | cure)


def test_marks_that_are_declared_stay_declared(tmp_path: Path) -> None:
    column = with_mark(with_mark(with_mark(TEMPERATURES, -999, 10), 9999, 40, 3), "n/a", 50, 1)
    section = write(tmp_path, column, "csv") | {"missing": "median", "missing_values": ["n/a"]}
    (found,) = said(tmp_path, section)
    assert "-999 in 40 and 9999 in 10 of 392 rows" in found
    assert "`missing_values: ['n/a', -999, 9999]`" in found


@pytest.mark.parametrize(
    "column",
    [
        [row % 9 - 2 for row in range(ROWS)],  # months behind with payments: -2, -1, 0 ..
        [row % 2 for row in range(ROWS)],
        [0 if row % 10 else row for row in range(ROWS)],  # amounts, of which most are zero
        [max(0, 90 - row % 400) for row in range(ROWS)],  # cut off at an end
        AGES,
        [row % 100 for row in range(ROWS)],
        [999 if row == 5 else row % 40 * 10 for row in range(ROWS)],
        np.exp(DRAWS.normal(size=ROWS) * 3).round(2).tolist(),
        [row % 5 + 5 for row in range(ROWS)],  # months 5 to 9
        [[4, 6, 8][row % 3] for row in range(ROWS)],
        [[12, 24, 36, 48, 60][row % 5] for row in range(ROWS)],
        [-1 if row % 3 else 1 for row in range(ROWS)],
        [9 if row % 3 else 3 for row in range(ROWS)],
    ],
)
def test_plain_numbers_are_not_said(tmp_path: Path, column: list[Any]) -> None:
    assert not said(tmp_path, write(tmp_path, column, "csv"))


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("codes", [["1e5", "2e5", "3E5", "4e5"], ["7", "12", "31", "90"], ["07", "12", "31", "90"],
    ["1.1", "1.10", "1.2", "2.1"], ["7.0", "12.0", "31.0"]])  # fmt: skip
def test_codes_that_are_read_as_numbers_are_said(tmp_path: Path, codes: list[str], every: int) -> None:
    column = [codes[row // every % len(codes)] for row in range(ROWS)]
    section = write(tmp_path, column, "csv")
    (found,) = said(tmp_path, section)
    assert "'x' is taken as numbers" in found
    assert "`types: {x: category}`" in found
    assert not said(tmp_path, section | {"types": {"x": "category"}})
    assert not said(tmp_path, section | {"types": {"x": "number"}})


def test_labels_with_a_mark(tmp_path: Path) -> None:
    section = write(tmp_path, with_mark(TEMPERATURES, -999, 10), "csv") | {"label": "x"}
    (found,) = load_labels(labels(section), tmp_path, "regression").doubts
    assert "`missing_values: [-999], missing: drop`" in str(found)
    section = write(tmp_path, with_mark([row % 2 for row in range(ROWS)], -999, 10), "csv") | {"label": "x"}
    with pytest.raises(DataError, match="numbers its classes -999, 0, 1") as refused:
        load_labels(labels(section), tmp_path)
    assert "`missing_values: [-999], missing: drop`" in refused.value.hint
    cured = load_labels(labels(section | {"missing_values": [-999], "missing": "drop"}), tmp_path)
    assert cured.classes == ("0", "1")


def test_rare_marks_of_a_long_table_are_counted_in_all_rows(tmp_path: Path) -> None:
    column = pa.array(np.where(np.arange(200_000) % 50 == 3, -999.0, np.arange(200_000) % 97))
    pa.parquet.write_table(pa.table({"x": column}), tmp_path / "t.parquet")
    (found,) = said(tmp_path, {"source": "parquet", "path": "t.parquet"})
    assert "-999 in 4000 of 200000 rows" in found
