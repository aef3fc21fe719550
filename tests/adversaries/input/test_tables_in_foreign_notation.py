"""A table with numbers and dates in the notation of another country's spreadsheet.

Bounds: no cell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.data.sources import load_features
from colonnade.common.errors import DataError
from colonnade.common.parsing.file import load
from tests.support.tables import table_tree, write_tables

PERSONS = 40

# The cells, the message on them, the configuration for them, and the values of the first two cells.
SCENES: dict[str, tuple[tuple[str, ...], str, dict[str, Any], tuple[float, float]]] = {
    "decimal commas": (("3,5", "0,25"), "decimal: ','", {"decimal": ","}, (3.5, 0.25)),
    "both marks": (("1.234,56", "2,5"), "decimal: ',', thousands: '.'", {"decimal": ",", "thousands": "."},
                   (1234.56, 2.5)),
    "thousands": (("1,234,567", "12"), "thousands: ','", {"thousands": ","}, (1234567, 12)),
    "swiss": (("1'234.5", "2'000"), "thousands: \"'\"", {"thousands": "'"}, (1234.5, 2000)),
    "spaces": (("1\u202f234,5", "2 000"), "decimal: ',', thousands: ' '", {"decimal": ",", "thousands": " "},
               (1234.5, 2000)),
    "either": (("2,500", "1,300"), "2.500 by `decimal: ','`, or 2500 by `thousands: ','`", {"decimal": ","},
               (2.5, 1.3)),
    "percent": (("12 %", "3.5%"), "types: {x: percent}", {"types": {"x": "percent"}}, (0.12, 0.035)),
    "money": (("€ 1.200,50", "€ 3"), "units: {x: '€'}", {"units": {"x": "€"}, "decimal": ",", "thousands": "."},
              (1200.5, 3)),
    "weights": (("12 kg", "-3kg"), "units: {x: 'kg'}", {"units": {"x": "kg"}}, (12, -3)),
    "iso dates": (("1970-01-03", "1970-01-01T12:00:00Z"), "types: {x: date}", {"types": {"x": "date"}}, (2, 0.5)),
    "dotted dates": (("03.01.1970", "2.1.1970"), "'date %d.%m.%Y'", {"types": {"x": "date %d.%m.%Y"}}, (2, 1)),
    "american dates": (("1/13/1970", "1/2/1970"), "'date %m/%d/%Y'", {"types": {"x": "date %m/%d/%Y"}}, (12, 1)),
    "either date": (("1/3/1970", "1/2/1970"), "which of them, the cells do not say",
                    {"types": {"x": "date %d/%m/%Y"}}, (59, 31)),
    "times": (("03.01.1970 06:00", "1.1.1970 0:00"), "'date %d.%m.%Y %H:%M'",
              {"types": {"x": "date %d.%m.%Y %H:%M"}}, (2.25, 0)),
}  # fmt: skip


def write(folder: Path, kind: str, cells: tuple[str, ...]) -> dict[str, Any]:
    write_tables(folder, persons=PERSONS, share=1.0)
    keys = [line.split(",")[0] for line in (folder / "party1.csv").read_text().splitlines()[1:]]
    table = pa.table({"who": keys, "x": [cells[row % len(cells)] for row in range(len(keys))]})
    if kind == "csv":
        lines = ["who;x", *(f'{who};"{x}"' for who, x in zip(*table.to_pydict().values(), strict=True))]
        (folder / "party1.csv").write_text("\r\n".join(["\ufeff" + lines[0], *lines[1:]]))
        return {"source": "csv", "path": "party1.csv", "delimiter": ";", "key": "who"}
    pyarrow.parquet.write_table(table, folder / "party1.parquet")
    return {"source": "parquet", "path": "party1.parquet", "key": "who"}


def with_party(folder: Path, data: dict[str, Any]) -> Path:
    tree = table_tree(batch=4, epochs=1)
    tree["parties"]["party1"]["data"] = data
    (folder / "federation.yaml").write_text(yaml.safe_dump(tree))
    return folder / "federation.yaml"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("scene", SCENES)
def test_it_is_not_silently_a_category_and_is_read_if_configured(scene: str, kind: str, tmp_path: Path) -> None:
    cells, said, more, numbers = SCENES[scene]
    data = write(tmp_path, kind, cells)
    with pytest.raises(DataError, match=r"^party1: .*, column 'x': .* (looks like|is no number)") as refused:
        check(with_party(tmp_path, data), ())
    assert said in refused.value.hint and "`types: {x: category}`" in refused.value.hint
    check(with_party(tmp_path, {**data, "types": {"x": "category"}}), ())
    file = with_party(tmp_path, {**data, **more})
    check(file, ())
    features = load_features(load(file).parties["party1"].data, PartyIndex(0, 2), tmp_path)
    assert features.values[:2, 0].tolist() == pytest.approx(numbers) and features.fields[0].words is None


DOUBTS = {
    "truths": (("ja", "nein"), "types: {x: boolean}"),
    "a minority": ((*"abcdefg", "3,5", "4,5"), "20% of its cells look like numbers"),
    "points": (("1.234", "12.500", "7"), "it may separate thousands"),
    "dates without marks": (("20240301", "19991231"), "'date %Y%m%d'"),
    "a constant": (("5",), "is the same in every row"),
    "a constant word": (("a",), "is the same in every row"),
    "nothing": (("",), "has no value in any row"),
    "an identifier": (tuple(f"u{n}" for n in range(PERSONS)), "another whole number or word in every row"),
}


@pytest.mark.parametrize("scene", DOUBTS)
def test_the_error_names_the_likely_notation(scene: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells, said = DOUBTS[scene]
    data = {**write(tmp_path, "parquet", cells), "missing": "mean", "unseen": "zero"}
    check(with_party(tmp_path, data), ())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("party1: 'x'")]
    (line,) = [line for line in lines if said in line]  # beside the one of what the column was taken for
    assert not any(cell in line for cell in cells if len(cell) > 4)


MISREAD = {
    "no such day": (("1.1.2024", "31.02.2024"), {"types": {"x": "date %d.%m.%Y"}}, "is no date"),
    "two-digit years": (("1.1.24",), {"types": {"x": "date %d.%m.%Y"}}, "is no date"),
    "no percent": (("12 %", "0.12"), {"types": {"x": "percent"}}, "has no '%'"),
    "another currency": (("€ 12", "$ 12"), {"units": {"x": "€"}}, "has no '€'"),
    "a point in groups": (("1,5", "2.5"), {"decimal": ","}, "'2.5' is no number"),
    "groups of two": (("1,000", "1,00"), {"thousands": ","}, "'1,00' is no number"),
    "no truth": (("ja", "nein", "vielleicht"), {"types": {"x": "boolean"}}, "is neither true nor false"),
}


@pytest.mark.parametrize("scene", MISREAD)
def test_a_cell_in_another_notation_than_configured_is_refused_with_its_line(scene: str, tmp_path: Path) -> None:
    cells, more, said = MISREAD[scene]
    data = write(tmp_path, "csv", cells)
    with pytest.raises(DataError, match=rf"party1\.csv, line {len(cells) + 1}, column 'x': .*{said}"):
        check(with_party(tmp_path, {**data, **more}), ())
