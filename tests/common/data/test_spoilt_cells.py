"""Cells that programs and people have spoilt are refused with their line, or warned of."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from colonnade.cli.checks.columns import described
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.columns import cells
from colonnade.common.data.columns.doubts import doubts
from colonnade.common.data.columns.encode import EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features
from colonnade.common.data.known_sets import catalogue
from colonnade.common.data.labels import classify
from colonnade.common.data.sources import load_features, load_labels, refuse_own_labels
from colonnade.common.errors import DataError
from colonnade.common.parsing.error_messages import whose

data, labels = (TypeAdapter(kind).validate_python for kind in (DataConfig, LabelConfig))


def read(folder: Path, column: list[str], **more: Any) -> Features:
    """A CSV table with keys and one column, x."""
    lines = (f"k{row},{cell}\n" for row, cell in enumerate(column))
    (folder / "t.csv").write_text("id,x\n" + "".join(lines), encoding="utf-8")
    return load_features(data({"source": "csv", "path": "t.csv", "key": "id", **more}), PartyIndex(0, 1), folder)


KNOWN_MARKS = [mark for mark in cells.MARKS if not {mark, mark.upper()} & {*cells.MISSING}]
BESIDE = {(mark, "refuse", 0.6) for mark in KNOWN_MARKS}
BESIDE |= {(*one, share) for one in product(("None", "zzz", "fehlt"), ("refuse", "mean")) for share in (0.2, 0.6, 0.95)}


@pytest.mark.parametrize(("mark", "missing", "share"), sorted(BESIDE))
def test_numbers_beside_a_mark_are_no_categories(tmp_path: Path, mark: str, missing: str, share: float) -> None:
    column = [f"{row}.5" if row % 20 >= 20 * share else mark for row in range(200)]
    with pytest.raises(DataError, match=r"t\.csv, line \d+, column 'x': .* is no number") as refused:
        read(tmp_path, column, missing=missing)
    assert "category" in refused.value.hint
    assert "missing value" in refused.value.hint
    codes = {"types": {"x": "category"}, "missing": "mean"}
    if mark.lower() in ("nan", "-nan", "nat", "none", "null", "<na>"):  # as codes too
        with pytest.raises(
            DataError, match=r"line \d+, column 'x': .* programs write it for a missing number"
        ) as refused:
            read(tmp_path, column, **codes)
        assert f"missing_values: ['{mark}']" in refused.value.hint
        codes["missing_values"] = [mark]
    assert read(tmp_path, column, **codes).fields[0].words is not None


def test_numbers_in_another_notation_beside_a_mark_are_asked_about(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="looks like numbers in another notation") as refused:
        read(tmp_path, [f"{row},5".join('""') if row % 5 == 0 else "None" for row in range(100)])
    assert "decimal: ','" in refused.value.hint


def test_words_with_numbers_among_them_are_said(tmp_path: Path) -> None:
    column = [str(row % 9) if row % 4 == 0 else "abc"[row % 3] for row in range(120)]
    (said,) = read(tmp_path, column).doubts
    assert "25% of its cells are plain numbers" in str(said)
    assert not read(tmp_path, column, types={"x": "category"}).doubts


@pytest.mark.parametrize("source", ["csv", "parquet"])
@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_every_word_for_a_missing_value_is_said_of_a_category(tmp_path: Path, source: str, missing: str) -> None:
    marks = sorted({*filter(None, cells.MISSING), *cells.MARKS, "NAN", "Null", "None", "#N/A", "#REF!"} - {"nd"})
    columns = {f"c{n}": [mark if row in (4, 7) else "abc"[row % 3] for row in range(9)] for n, mark in enumerate(marks)}
    signs = {"rhesus": ["+", "-", "+"] * 3, "stars": ["*", "**", "***"] * 3, "state": ["ND", "NY", "CA"] * 3}
    table = pa.table({"id": list("abcdefghi"), **columns, **signs})
    {"csv": pa.csv.write_csv, "parquet": pa.parquet.write_table}[source](table, tmp_path / "t")
    how = {"source": source, "path": "t", "key": "id", "missing": missing}
    said = load_features(data(how), PartyIndex(0, 1), tmp_path).doubts
    assert [doubt.column for doubt in said] == [*columns]
    for mark, doubt in zip(marks, map(str, said), strict=True):
        assert f"2 of its cells (first in {tmp_path / 't'}, {'line 6' if source == 'csv' else 'row 5'}) are" in doubt
        assert f"missing_values: ['{mark}']{', missing: mean' if missing == 'refuse' else ''}`" in doubt
    declared = load_features(data({**how, "types": dict.fromkeys(columns, "category")}), PartyIndex(0, 1), tmp_path)
    assert declared.doubts == said  # whoever declares words need not know of these


SPACED = ("{}\u00a0%", "{}\u202fkg", "{}\u2009€")
UNPLAIN = (
    "US$ {}", "1,00,{}", "１{}", "{} Mio", *SPACED, "=`{}`", "'{}", "\u200b{}", "{}\u200f", "\ufeff{}", "{}_000",
    "1.{}D+03", "0x{}", "{}٫5", "{}·5", "－{}", "- {}", "{}‰", "{}％", "CHF {}'000.–", "€ {},--", "({})", "{}-",
)  # fmt: skip
UNPLAIN_DAYS = (
    "{:02}-Jan-2024", "{:02}-MAR-24", "{}. Januar 2024", "{} janvier 2024", "{} de enero de 2024", "{} maart 2024",
    "{} gennaio 2024", "{} de março de 2024", "Febr. {}, 2024", "1/{}/2024 8:00 AM", "1/{}/2024 8:00",
    "Mon, {} Jan 2024 10:00:00 GMT",
)  # fmt: skip


@pytest.mark.parametrize(("cell", "begin"), [*product(UNPLAIN, [100]), *product(UNPLAIN_DAYS, [1])])
def test_numbers_and_dates_of_other_programs_and_countries_are_no_categories(
    tmp_path: Path, cell: str, begin: int
) -> None:
    column = [cell.format(row).replace("`", '""').join('""') for row in range(begin, begin + 28)]
    kind = "dates" if begin == 1 else "numbers|percentages"
    with pytest.raises(DataError, match=rf"line 2, column 'x': .* a category, and looks like ({kind})") as refused:
        read(tmp_path, column)
    assert any(said in refused.value.hint for said in ("units", "percent", "write them", "`types: {x: 'date "))
    assert read(tmp_path, column, types={"x": "category"}).fields[0].words is not None


@pytest.mark.parametrize("cell", ["A{}", "{}-A", "{}²", "K-{}", "{}.1.2", "{}:30", "<{}", "{} rooms", "½ {}"])
def test_words_with_digits_are_categories(tmp_path: Path, cell: str) -> None:
    assert read(tmp_path, [cell.format(row // 2) for row in range(60)]).fields[0].words is not None


@pytest.mark.parametrize("cell", SPACED)
def test_every_space_is_one(tmp_path: Path, cell: str) -> None:
    unit = cell[3:]
    how = {"types": {"x": "percent"}} if unit == "%" else {"units": {"x": unit}}
    column = [
        cell.format(f"1{space}{row}") for space, row in zip("\u00a0\u202f\u2009 " * 7, range(200, 228), strict=True)
    ]
    found = read(tmp_path, column, thousands=" ", **how).values[:, 0].tolist()
    assert found == [(1200 + row) / (100 if unit == "%" else 1) for row in range(28)]


@pytest.mark.parametrize(
    "pair", ["sí no", "waar onwaar", "VERDADERO FALSO", "vero falso", "sim não", "si\u0301 no", "ja nee"]
)
def test_truth_is_read_in_many_languages(tmp_path: Path, pair: str) -> None:
    column = (pair.split() * 20)[:-1]
    assert read(tmp_path, column, types={"x": "boolean"}).values[:, 0].tolist() == ([1.0, 0.0] * 20)[:-1]
    assert "boolean" in str(read(tmp_path, column).doubts[0])


def test_few_words_among_more_numbers_are_said(tmp_path: Path) -> None:
    (said,) = read(tmp_path, [f"{row}.5" if row % 12 == 0 else ("later", "tbd")[row % 2] for row in range(80)]).doubts
    assert "9% of its cells are plain numbers" in str(said)


def test_zeros_of_both_signs_are_one_word() -> None:
    for kind in (np.float16, np.float32, np.float64):
        assert cells.words(pa.array(np.array([-0.0, 0.0, -1.0], kind))).to_pylist() == ["0", "0", "-1"]


@pytest.mark.parametrize(
    "spoilt", ['abc""', "abc'", "ABC", "a bc", "abc\u200b", "“abc”", "ａbc", "аbс", "ｃafé", "cafe\u0301", "cafÃ©",
    "caf├®", "cafÚ", "caf&eacute;", "ﬁ", "x–y"]
)  # fmt: skip
def test_words_that_are_probably_one_are_said_with_their_line(tmp_path: Path, spoilt: str) -> None:
    words = ("abc", "defg", "a", "b", "A", "café", "cafe", "fi", "x-y")
    column = [spoilt if row in (40, 50) else words[row % 10] if row % 10 < 9 else "Москва" for row in range(100)]
    (said,) = map(str, read(tmp_path, column, unseen="zero").doubts)
    assert "'x' has words that differ from others in spelling alone, in 2 rows (first in" in said
    assert "t.csv, line 42; the more frequent one in" in said and spoilt not in said


def test_white_space_around_classes_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,y\nk1,no\nk2, yes\nk3,no \n")
    found = load_labels(labels({"source": "csv", "path": "t.csv", "key": "id", "label": "y"}), tmp_path)
    assert found.classes == ("no", "yes") and "white space around the class in 2 rows" in str(found.doubts[0])


@given(
    st.sampled_from(
        ["NAN", "Nan", "-nan", "+NaN", "nan(1)", "INF", "-inf", "Infinity", "１２", "١", "1_0", "0x1p3", "1e400"]
    )
)
def test_what_only_programs_take_for_a_number_is_refused(tmp_path_factory: pytest.TempPathFactory, cell: str) -> None:
    folder = tmp_path_factory.mktemp("cells")
    with pytest.raises(DataError, match=r"line 3, column 'x': .* (is no number|is not finite)"):
        read(folder, ["1.5", cell, "2.5", "3.5"], missing="mean")


@pytest.mark.parametrize(
    "cell", ["-1.797693e308", "1.7976931348623157e+308", "8.98e307", "-3.4028234663852886e+38", "1e155"]
)
def test_numbers_that_cannot_be_scaled_are_refused(tmp_path: Path, cell: str) -> None:
    with pytest.raises(DataError, match=r"t\.csv, line 4, column 'x': .* is too large to be scaled"):
        read(tmp_path, ["1", "2", cell, "3"])


def test_plain_numbers_that_overflow_are_refused_by_their_column() -> None:
    import torch

    values = torch.tensor([[1.0, 1e200], [2.0, -1e200], [3.0, 0.0]], dtype=torch.float64)
    with pytest.raises(DataError, match="column 'b': its numbers are too large"):
        Encoder.fit(EncodeConfig("standard"), Features(values, ("a", "b")), torch.arange(3))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("where", ["feature", "label"])
def test_nan_is_a_missing_value_in_every_type(tmp_path: Path, kind: type, where: str) -> None:
    codes = np.array([0, 1, np.nan, 1, 0], kind)
    pa.parquet.write_table(pa.table({"id": list("abcde"), "x": pa.array(codes)}), tmp_path / "t.parquet")
    how = {"source": "parquet", "path": "t.parquet", "key": "id"}
    with pytest.raises(DataError, match=r"row 3, column 'x': the value is missing"):
        if where == "label":
            load_labels(labels({**how, "label": "x"}), tmp_path)
        else:
            load_features(data({**how, "types": {"x": "category"}}), PartyIndex(0, 1), tmp_path)
    found = load_features(data({**how, "types": {"x": "category"}, "missing": "mean"}), PartyIndex(0, 1), tmp_path)
    assert found.fields[0].words == ("0", "1")


@pytest.mark.parametrize("missing", ["mean", "refuse"])
def test_what_stands_for_a_missing_value_is_declared(tmp_path: Path, missing: str) -> None:
    column = ["1.5", "None", " - ", "-999", "-999.0", "-9.99e2", "none"[:0], "2.5"]
    declared = {"missing": missing, "missing_values": ["None", "-", -999]}
    if missing == "refuse":
        with pytest.raises(DataError, match=r"line 3, column 'x': the value is missing"):
            read(tmp_path, column, **declared)
        return
    values = read(tmp_path, column, **declared).values.squeeze(1)
    assert values.isnan().tolist() == [False, *[True] * 6, False]
    with pytest.raises(DataError, match="line 3, column 'x': 'none' is no number") as refused:  # case counts
        read(tmp_path, ["1", "none", "3"], **declared)
    assert "missing_values: ['None', '-', -999, 'none']" in refused.value.hint


def test_marks_of_missing_values_hold_in_typed_columns_words_keys_and_labels(tmp_path: Path) -> None:
    columns = {"id": list("abcd"), "n": [1, -999, 3, 4], "w": pa.array(["x", "n/a", "y", "x"]).dictionary_encode()}
    pa.parquet.write_table(pa.table({**columns, "y": ["no", "yes", "?", "yes"]}), tmp_path / "t.parquet")
    how = {"source": "parquet", "path": "t.parquet", "key": "id", "missing_values": [-999, "n/a", "?"]}
    found = load_features(data({**how, "drop": ["y"], "missing": "zero"}), PartyIndex(0, 1), tmp_path)
    assert found.values.isnan().tolist() == [[False] * 2, [True] * 2, [False] * 2, [False] * 2]
    assert found.fields[1].words == ("x", "y")
    assert load_labels(labels({**how, "label": "y", "missing": "drop"}), tmp_path).classes == ("no", "yes")
    with pytest.raises(DataError, match="row 3, column 'id': the value is missing"):
        load_labels(labels({**how, "missing_values": ["c"], "label": "n"}), tmp_path)


@pytest.mark.parametrize(
    ("kind", "marks", "cells_", "missing"),
    [
        (pa.float32(), ["99.9", 1e-60, 1e39], [99.9, 0, 99.91], [True, False, False]),
        (pa.float16(), ["99.9"], [99.9, 0, 99], [True, False, False]),
        (pa.decimal128(9, 2), ["99.9"], [99.9, 0, 99.91], [True, False, False]),
        (pa.int64(), [2**53 + 1, -999], [2**53, 2**53 + 1, -999], [False, True, True]),
        (pa.decimal128(30), [2**53 + 1], [2**53, 2**53 + 1, 1], [False, True, False]),
        (pa.string(), [2**53 + 1, "1e3"], [str(2**53), str(2**53 + 1), "1000"], [False, True, True]),
    ],
)
def test_a_number_that_stands_for_a_missing_value_has_the_precision_of_the_column(
    tmp_path: Path, kind: pa.DataType, marks: list[Any], cells_: list[Any], missing: list[bool]
) -> None:
    exact = [Decimal(str(cell)) for cell in cells_] if pa.types.is_decimal(kind) else cells_
    column = pa.array(np.array(cells_, np.float16)) if pa.types.is_float16(kind) else pa.array(exact, kind)
    pa.feather.write_feather(pa.table({"x": column}), tmp_path / "t.arrow")
    how = {"source": "arrow", "path": "t.arrow", "missing_values": marks, "missing": "mean"}
    values = load_features(data(how), PartyIndex(0, 1), tmp_path).values
    assert values.isnan().flatten().tolist() == missing


@pytest.mark.parametrize(
    ("column", "more"),
    [
        (["€ 1", "€150", "150 €", "-€150", "150"], {"units": {"x": "€"}}),
        (["1 %", "150 %", "150%", "-150 %", "1.5e2"], {"types": {"x": "percent"}}),
        (
            ['"1.000,5 €"', '"150,0 €"', "150 €", "-150 €", "150"],
            {"units": {"x": "€"}, "decimal": ",", "thousands": "."},
        ),
    ],
)
def test_a_number_that_stands_for_a_missing_value_does_so_with_its_unit(
    tmp_path: Path, column: list[str], more: dict[str, Any]
) -> None:
    values = read(tmp_path, column, missing_values=[150], missing="mean", **more).values
    assert values.isnan().flatten().tolist() == [False, True, True, False, True]


def test_words_of_decimals_are_those_of_other_numbers(tmp_path: Path) -> None:
    exact = pa.array([Decimal("0.00"), Decimal("100.00"), Decimal("-1.50"), None], pa.decimal128(38, 20))
    pa.parquet.write_table(pa.table({"x": exact}), tmp_path / "t.parquet")
    how = {"source": "parquet", "path": "t.parquet", "types": {"x": "category"}, "missing": "mean"}
    assert load_features(data(how), PartyIndex(0, 1), tmp_path).fields[0].words == ("-1.5", "0", "100")


@pytest.mark.parametrize(
    ("type", "cell"), [("date", "9999-12-31 00:00:00"), ("date", "9999-12-31T23:59"), ("date %d.%m.%Y", "31.12.9999")]
)
def test_a_day_that_stands_for_a_missing_value_does_so_in_every_form(tmp_path: Path, type: str, cell: str) -> None:
    other = "2024-03-01" if type == "date" else "01.03.2024"
    found = read(tmp_path, [other, cell], types={"x": type}, missing_values=["9999-12-31"], missing="mean")
    assert found.values.isnan().flatten().tolist() == [False, True]


@pytest.mark.parametrize("value", [[None], [True]])
def test_what_yaml_reads_otherwise_is_no_mark(value: list[Any]) -> None:
    with pytest.raises(ValidationError, match="put it in quotes"):
        data({"source": "csv", "path": "t.csv", "missing_values": value})


def test_numbers_that_may_be_codes_are_said(tmp_path: Path) -> None:
    (said,) = read(tmp_path, [f"{row % 50:03}" for row in range(200)]).doubts
    assert "zeros before them" in str(said)
    assert not read(tmp_path, [f"{row % 50:03}" for row in range(200)], types={"x": "number"}).doubts
    (said,) = read(tmp_path, [str(2**60 + row % 50) for row in range(200)]).doubts
    assert "more digits than the 16 that are read" in str(said)
    for name, warns in (
        ("agent", True),
        ("large", True),
        ("AgentID", True),
        ("branch_code", True),
        ("age", False),
        ("idle", False),
    ):
        more = 2**60 if name == "large" else 0
        codes = pa.table({"key": [f"k{n}" for n in range(200)], name: [more + n * 37 % 140 for n in range(200)]})
        pa.parquet.write_table(codes, tmp_path / "t.parquet")
        how = data({"source": "parquet", "path": "t.parquet", "key": "key"})
        found = load_features(how, PartyIndex(0, 1), tmp_path).doubts
        assert bool(found) == warns
        assert all(
            ("200 cells" if more else "140 different whole ones") in str(doubt) and "category" in doubt.hint
            for doubt in found
        )


# --- names of classes


@pytest.mark.parametrize(
    "names",
    [("0_0", "0_1"), ("00", "01"), ("１", "２"), ("٠", "١"), ("0", "inf"), ("nan", "1"), ("0e1", "1e0"), ("1_0", "2")],
)
def test_names_that_python_reads_as_numbers_stay_names(names: tuple[str, str]) -> None:
    values, classes = classify([*names, names[0]], "t.csv, column 'y'")
    assert set(classes) == set(names) and [classes[code] for code in values.tolist()] == [*names, names[0]]


@pytest.mark.parametrize(
    "words",
    [("0", "1"), ("0.0", "1.0"), ("1", "0."), ("0.000000000000000000e+00", "1.000000000000000000e+00"), ("+0", "1")],
)
def test_numbers_of_classes_are_numbers(words: tuple[str, str]) -> None:
    values, classes = classify(words, "t.csv, column 'y'")
    assert classes == ("0", "1") and values.tolist() == [int(float(word)) for word in words]


# --- keys

KEYS = [f"{4021551230000 + row}" for row in range(40)]
SPOILT = {
    "fractions": (lambda key: f"{key}.0", "became fractions"),
    "comma": (lambda key: f'"{key},0"', "became fractions"),
    "shortened": (lambda key: f"4.0215512{int(key) % 100:02}E+12", "a program has shortened"),
    "of Java": (lambda key: f"4.0215512{int(key) % 100:02}E12", "a program has shortened"),
    "rounded": (lambda key: f"4{int(key) - 3 * 10**12:014}000", "zeros after 15 digits"),
    "time of a zone": (lambda key: f"{2000 + int(key) % 100}-01-05T00:00:00+00:00", "a time of 00:00"),
    **{
        text: (lambda key, text=text: text.format(key), "as a program shows them")
        for text in ("b'{}'", "np.int64({})", "Decimal('{}')", "['{}']")
    },
    "HTML": (lambda key: f"Zo&euml;{key}", "references of HTML"),
    "address": (lambda key: f"Zo%C3%AB{key}", "escapes of an address"),
    "program": (lambda key: f"Zo\\xeb{key}", "escapes of an address"),
    "two scripts": (lambda key: f"аb{key}", "letters of two scripts"),
    "time": (lambda key: f"{2000 + int(key) % 100}-01-05 00:00:00", "a time of 00:00"),
    "encoding": (lambda key: f"ZoÃ«{key}", "a wrong encoding"),
    "unread": (lambda key: f"Zo\ufffd{key}", "a wrong encoding"),
    **{
        name: (lambda key, name=name: f"{key[:3]}{name}{key[3:]}", "invisible characters")
        for name in "\u2009\ufe0f\u034f\u3164\u2800"
    },
    **{name: (lambda key, name=name: f"{key[:3]}{name}{key[3:]}", "of word processors") for name in "‑–−’”"},
    "zero width": (lambda key: f"\u200b{key}", "invisible characters"),
    "mark of order": (lambda key: f"\ufeff{key}", "invisible characters"),
    "soft hyphen": (lambda key: f"{key[:3]}\u00ad{key[3:]}", "invisible characters"),
    "no-break space": (lambda key: f"{key[:3]}\u00a0{key[3:]}", "invisible characters"),
    "full width": (lambda key: key.translate({48 + n: 0xFF10 + n for n in range(10)}), "digits of another script"),
    "apostrophe": (lambda key: f"'{key}", "begin with a quotation mark"),
}


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("count", [1, 27, 39])
def test_spoilt_keys_are_counted_for_their_owner(tmp_path: Path, spoilt: str, count: int) -> None:
    change, said = SPOILT[spoilt]
    keys = [change(key) if row < count else key for row, key in enumerate(KEYS)]
    (tmp_path / "t.csv").write_text(
        "id,x\n" + "".join(f"{key},{row % 7}\n" for row, key in enumerate(keys)), encoding="utf-8"
    )
    how = {"source": "csv", "path": "t.csv", "key": "id"}
    found = load_features(data(how), PartyIndex(0, 1), tmp_path)
    (doubt,) = doubts(found)
    assert str(doubt).endswith("other members probably write them differently")
    assert said in str(doubt) and f"{count} of 40 keys" in str(doubt) and KEYS[0][:6] not in str(doubt)
    assert [*load_labels(labels({**how, "label": "x"}), tmp_path).doubts] == [doubt]


def day(row: int, form: str = "%Y-%m-%d") -> str:
    return (datetime.date(2020, 1, 1) + datetime.timedelta(row)).strftime(form)


PARTLY: dict[str, tuple[Callable[[int], str], Callable[[int], str], str]] = {
    "Cyrillic": (lambda row: f"K{row:03}", lambda row: f"\u041a{row:03}", "another script"),
    "Greek": (lambda row: f"{row:03}H", lambda row: f"{row:03}\u0397", "another script"),
    "lost zeros": (lambda row: f"{row + 80:06}", lambda row: str(row + 80), "zeros may be lost"),
    "lost zeros of a part": (lambda row: f"K-{row:03}-A", lambda row: f"K-{row}-A", "zeros may be lost"),
    "code page 850": (lambda row: f"Zoë-{row:03}", lambda row: f"ZoÙ-{row:03}", "another encoding"),
    "Mac Roman": (lambda row: f"Zoë-{row:03}", lambda row: f"ZoÎ-{row:03}", "another encoding"),
    "question mark": (lambda row: f"Zoë-{row:03}", lambda row: f"Zo?-{row:03}", "a question mark where"),
    "letter O": (lambda row: f"K{row:03}", lambda row: f"K{row:03}".replace("0", "O", 1), "the letters O, I or l"),
    "letter O in a number": (lambda row: f"40{row:03}", lambda row: f"4O{row:03}", "the letters O, I or l"),
    "case": (lambda row: f"K{row:03}x", lambda row: f"k{row:03}x", "capital letters"),
    "points": (day, lambda row: day(row, "%d.%m.%Y"), "days in another notation"),
    "serial days": (day, lambda row: str(43831 + row), "days in another notation"),
    "names of months": (day, lambda row: day(row, "%d-%b-%Y"), "days in another notation"),
    "without marks": (day, lambda row: day(row, "%Y%m%d"), "days in another notation"),
}


@pytest.mark.parametrize("spoilt", PARTLY)
@pytest.mark.parametrize("share", [3, 20, 80])
def test_keys_of_which_a_part_is_spoilt_are_said_with_their_line(tmp_path: Path, spoilt: str, share: int) -> None:
    plain, change, said = PARTLY[spoilt]
    if spoilt == "letter O":
        share = min(share, 20)
    keys = [change(row) if row % 100 < share and row % 7 else plain(row) for row in range(100)]
    (tmp_path / "t.csv").write_text("id,x\n" + "".join(f"{key},{row % 7}\n" for row, key in enumerate(keys)))
    found = load_features(data({"source": "csv", "path": "t.csv", "key": "id"}), PartyIndex(0, 1), tmp_path)
    (doubt,) = map(str, doubts(found))
    assert (
        said in doubt
        and f" of 100 keys (first in {tmp_path / 't.csv'}, line " in doubt
        and keys[1] not in doubt.partition(", line ")[2]
    )


RANDOM = np.random.default_rng(0)
ORDINARY = {
    "numbers": [str(row) for row in range(200)],
    "padded numbers": [f"{row:04} " if row % 2 else f"{row:04}" for row in range(200)],
    "hexadecimal": [RANDOM.bytes(8).hex() for _ in range(200)],
    "letters and digits": ["".join(RANDOM.choice([*"ABCOIL0123456789"], 5)) for _ in range(200)],
    "letters of both cases": ["".join(RANDOM.choice([*"abcdefABCDEF"], 6)) for _ in range(200)],
    "days": [day(row) for row in range(200)],
    "numbers of two lengths": [str(row) for row in (*range(40000, 40100), *range(20200101, 20200131))],
    "letters before numbers": [f"{'IO'[row % 2]}{row:04}" for row in range(200)],
    "telephone numbers": [f"+49 30 {row:05}" for row in range(200)],
    "addresses": [f"https://a.de/a%20b?x={row}%2F" for row in range(200)],
    "Russian plates": [f"А{row:03}МС" for row in range(200)],
    "names": [f"{name} {row}" for row in range(30) for name in ("Zoë", "Jörg", "Ann", "van Ek", "КАТЯ")],
}


@pytest.mark.parametrize("keys", ORDINARY)
def test_ordinary_keys_are_not_doubted(tmp_path: Path, keys: str) -> None:
    column = list(dict.fromkeys(ORDINARY[keys]))
    pa.parquet.write_table(pa.table({"id": column, "x": [row % 2 for row in range(len(column))]}), tmp_path / "t")
    how = {"source": "parquet", "path": "t", "key": "id"}
    assert not load_features(data(how), PartyIndex(0, 1), tmp_path).doubts


@given(
    st.lists(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ./:-]{0,8}[A-Za-z]", fullmatch=True), min_size=2, max_size=9, unique=True
    )
)
def test_plain_keys_are_not_doubted(tmp_path_factory: pytest.TempPathFactory, keys: list[str]) -> None:
    folder = tmp_path_factory.mktemp("keys")
    pa.parquet.write_table(pa.table({"id": keys, "x": [row % 2 for row in range(len(keys))]}), folder / "t.parquet")
    how = {"source": "parquet", "path": "t.parquet", "key": "id"}
    assert not load_features(data(how), PartyIndex(0, 1), folder).doubts


def test_a_time_as_a_key_is_to_be_cast() -> None:
    with pytest.raises(cells.Misfit) as refused:
        cells.keys(pa.array([0], pa.timestamp("ms")))
    assert "cast it to a date" in refused.value.hint


# --- quotation marks


@given(
    st.integers(2, 5), st.integers(0, 4), st.integers(2, 30), st.integers(1, 12), st.booleans()
)  # fmt: skip
def test_rows_between_two_stray_quotation_marks_are_missed(
    tmp_path_factory: pytest.TempPathFactory, columns: int, place: int, begin: int, length: int, windows: bool
) -> None:
    place %= columns
    folder = tmp_path_factory.mktemp("quotes")
    rows = [[f"{'abcde'[column]}{row}" for column in range(columns)] for row in range(60)]
    rows[begin][place] = '"' + rows[begin][place]
    rows[begin + length][place] += '"'
    header = ["id", *(f"c{column}" for column in range(1, columns))]
    end = "\r\n" if windows else "\n"
    (folder / "t.csv").write_text(end.join(map(",".join, [header, *rows])) + end, newline="")
    with pytest.raises(
        DataError, match=rf"line {begin + 2}, column .* a quotation mark begins a cell of {length + 1} lines"
    ):
        load_features(data({"source": "csv", "path": "t.csv", "key": "id"}), PartyIndex(0, 1), folder)


def test_texts_of_several_lines_are_cells(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,x,note\na,1,"Dear Sir,\nthank you, and\ngood bye"\nb,2,none\n')
    found = load_features(
        data({"source": "csv", "path": "t.csv", "key": "id", "drop": ["note"]}), PartyIndex(0, 1), tmp_path
    )
    assert found.ids == ("a", "b")


# --- what `check` prints


def test_every_column_is_described_with_examples(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,age,town,day\na,1.5,Ulm,2024-03-01\nb,,Bonn,2024-03-01\nc,3,Ulm,2024-03-02\n")
    how = {"source": "csv", "path": "t.csv", "key": "id", "missing": "mean", "types": {"day": "date"}}
    found = load_features(data(how), PartyIndex(0, 1), tmp_path)
    age, town, day = described(found, {"day": "date"})
    assert age == "'age': number, 1 missing; as 1.5, 3"
    assert town == "'town': category of 2 words, none missing; as 'Ulm', 'Bonn'"
    assert day.startswith("'day': date, in days since 1970, none missing; as 19783")


@pytest.mark.parametrize(
    "text", [":new", "12:30", "a::b", '{"vip":true}', "(?:a|b)", "[:2]", "100 %", "%s", "%(name)s", "\\:x", "?", "$1"]
)
def test_a_query_is_run_as_it_is_written(tmp_path: Path, text: str) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "t.db") as link:
        link.execute("create table t (id, x, note)")
        link.executemany("insert into t values (?, ?, ?)", [("a", 1, text), ("b", 2, text), ("c", 3, "other")])
    link.close()
    quoted = text.replace("'", "''")
    how = {
        "source": "sql",
        "url": "sqlite:///t.db",
        "key": "id",
        "query": f"select id, x from t where note = '{quoted}' order by id;",
    }
    assert load_features(data(how), PartyIndex(0, 1), tmp_path).ids == ("a", "b")


def test_blank_lines_above_the_header_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n\nid,x\na,1.5\n\nb,zzz\nc,2\nd,3\n")
    with pytest.raises(DataError, match="line 6, column 'x': 'zzz' is no number"):
        load_features(data({"source": "csv", "path": "t.csv", "key": "id"}), PartyIndex(0, 1), tmp_path)


def test_a_user_without_a_home_has_a_cache_of_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    def gone(_uid: int) -> None:
        raise KeyError("no such user")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", gone)
    assert catalogue.cache().name.startswith("colonnade")
    with pytest.raises(DataError, match="no home folder"):
        catalogue.find("~/t.csv", Path(), Path.is_file, "file")


def table_of(folder: Path, text: str) -> dict[str, Any]:
    (folder / "table.csv").write_text(text, encoding="utf-8")
    return {"source": "csv", "path": "table.csv", "key": "id"}


@pytest.mark.parametrize(("words", "rows"), [(("01067", "1067"), 4), (("A01", "A1"), 4), (("B10", "B9"), 0)])
def test_words_that_have_lost_zeros_beside_words_that_have_them_are_told_of(
    tmp_path: Path, words: tuple[str, str], rows: int
) -> None:
    made = table_of(tmp_path, "id,plz\n" + "".join(f"k{row},{words[row % 2]}\n" for row in range(8)))
    data = TypeAdapter[Any](DataConfig).validate_python({**made, "types": {"plz": "category"}})
    labels = TypeAdapter[Any](LabelConfig).validate_python({**made, "label": "plz"})
    found = (load_features(data, PartyIndex(0, 1), tmp_path), load_labels(labels, tmp_path, "classification"))
    for doubts_of in found:
        told = [str(doubt) for doubt in doubts_of.doubts if "begin with zeros" in str(doubt)]
        assert [f"in {rows} rows (first in {tmp_path / 'table.csv'}, line 3)" in each for each in told] == [
            True
        ] * bool(rows)


def test_a_name_in_another_unicode_form_is_told_by_its_difference(tmp_path: Path) -> None:
    made = table_of(tmp_path, "id,ero\u0308ffnet\nk,1\n")
    data = TypeAdapter[Any](DataConfig).validate_python({**made, "columns": ["er\xf6ffnet"]})
    with pytest.raises(
        DataError, match=r"it has 'ero\\u0308ffnet', which looks the same in another Unicode normal form"
    ):
        load_features(data, PartyIndex(0, 1), tmp_path)


def test_missing_labels_are_the_servers_also_where_a_partys_columns_are_checked(tmp_path: Path) -> None:
    made = table_of(tmp_path, "id,x\nk,1\n")
    data = TypeAdapter[Any](DataConfig).validate_python(made)
    labels = TypeAdapter[Any](LabelConfig).validate_python({**made, "path": "none.csv", "label": "x"})
    with pytest.raises(DataError, match=r"^server: no file at .*none\.csv"), whose("bank"):
        refuse_own_labels(labels, data, PartyIndex(0, 1), "parties.bank.data", tmp_path)
