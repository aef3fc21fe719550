"""CSV files: spoilt ones are read as what they are, or refused with a hint that works when it is followed."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.data.columns.doubts import doubts
from colonnade.common.data.columns.features import Features
from colonnade.common.data.formats.csv_file import CsvFile
from colonnade.common.data.sources import load_features
from colonnade.common.data.table import TableColumns, read_words, require
from colonnade.common.errors import DataError

Opened = Callable[..., CsvFile]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    def write(text: str | bytes, delimiter: str = ",") -> CsvFile:
        path = tmp_path / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return CsvFile.open(path, delimiter)

    return write


def numbers(file: CsvFile, *names: str) -> Features:
    return TableColumns(file, names, types=dict.fromkeys(names, "number")).features()


@given(rows=st.lists(st.lists(st.floats(-1e30, 1e30), min_size=3, max_size=3), min_size=1, max_size=9))
def test_reads_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, rows: list[list[float]]) -> None:
    path: Path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", newline="") as lines:
        csv.writer(lines).writerows([["a", "b", "c"], *rows])
    values = numbers(CsvFile.open(path), "c", "a").values
    assert values.tolist() == [[c, a] for a, _, c in rows]
    assert values.dtype == torch.float64


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2.5\n", "a,b\r\n1,2.5\r\n", "\ufeffa,b\n1,2.5", '"a","b"\n"1"," 2.5 "\n\n', "a,b,c\n1,2.5,x\n"],
)
def test_ways_to_write_the_same(opened: Opened, text: str | bytes) -> None:
    assert numbers(opened(text), "a", "b").values.tolist() == [[1.0, 2.5]]


def test_another_delimiter(opened: Opened) -> None:
    assert numbers(opened("a;b\n1;2\n", ";"), "b").values.tolist() == [[2.0]]


def test_words_and_keys(opened: Opened) -> None:
    file = opened("id,name\n7, Ann\n8,NA\n")
    for key, keys in (("id", ("7", "8")), (None, None)):
        found, read = read_words(file, "name", key)
        assert (found.codes.tolist(), found.words, read) == ([0, 1], ("Ann", "NA"), keys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("\n1,2\n", "line 2: 1, 2 are numbers, not names"),
        ("1,2\n3,4\n", "line 1: 1, 2 are numbers, not names"),
        ("a,a\n1,2\n", "line 1: two columns are called 'a'"),
        (b"a,b\xff\n1,2\n", "line 1: byte 0xff is not UTF-8"),
        ("a,b\n", "has columns but no rows"),
        ("a,b\n1,2\n3\n", "line 3: 1 values for the 2 columns"),
        ("a,b\n1,2\n\n3,4,5\n", "line 4: 3 values for the 2 columns"),
        ("a,b\n1,2\n3,x\n4,y\n", "line 3, column 'b': 'x' is no number"),
        ("a,b\n1,1_000\n", "line 2, column 'b': '1_000' is no number"),
        ("a,b\n1,2\n,3\n", "line 3, column 'a': the value is missing"),
        ("a,b\n1,?\n", "line 2, column 'b': the value is missing"),
        ("a,b\n1,NaN\n", "line 2, column 'b': the value is missing"),
        ("a,b\n1,2\n1,inf\n", "line 3, column 'b': 'inf' is not finite"),
        ("a,b\n1,1e999\n", "line 2, column 'b': '1e999' is not finite"),
        ('a,b\n1,2\n"1\n",2\n3,x\n', "line 5, column 'b': 'x' is no number"),
        (b"a,b\n1,\xff\n", "line 2: byte 0xff is not UTF-8"),
    ],
)
def test_refuses_numbers(opened: Opened, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        numbers(opened(text), "a", "b")
    assert caught.value.hint and "table.csv" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "message"),
    [("oops", "'oops' is no number"), ("", "the value is missing"), ("1,2", "2 values for the 1 columns")],
)
def test_a_fault_of_a_long_file_is_found(opened: Opened, cell: str, message: str) -> None:
    lines = [str(row) + " " * 20 for row in range(400_000)]
    lines[350_000] = cell
    with pytest.raises(DataError, match=f"line 350002.*{message}"):
        TableColumns(opened("\n".join(['"b"', *(line if line else '""' for line in lines)])), ("b",)).features()


@pytest.mark.parametrize("rows", [10, 100_000])
def test_a_quotation_mark_without_its_partner_is_found(opened: Opened, rows: int) -> None:
    lines = ["a,b", *["1,2"] * rows]
    lines[5] = '1,"2'
    with pytest.raises(DataError, match=r"line 6, column 'b'|after line 5(:|, column 'b')") as caught:
        numbers(opened("\n".join(lines)), "a", "b")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_a_byte_that_is_no_text_far_down(opened: Opened) -> None:
    with pytest.raises(DataError, match="line 50002: byte 0xff is not UTF-8"):
        numbers(opened(b"a,b\n" + b"1,2\n" * 50_000 + b"1,\xff\n"), "b")


def test_refuses_an_empty_word(opened: Opened) -> None:
    with pytest.raises(DataError, match="line 3, column 'b': the value is missing"):
        read_words(opened("a,b\n1,x\n2,\n"), "b", None)


def test_refuses_an_unknown_column(opened: Opened) -> None:
    with pytest.raises(DataError, match=r"no column 'agee' \(did you mean 'age'\?\)") as caught:
        require(opened("age,sex\n1,2\n"), ["sex", "agee"])
    assert "age, sex" in caught.value.hint


@pytest.mark.parametrize("text", ['a,b\n1,x\n2,"y\n3,z\n4,w\n', 'a,b\n1,x\n2,"y\n3,z\n4,"w\n5,v\n', 'a,b\n1,"x\n2,y\n'])
def test_a_quotation_mark_without_its_partner_swallows_no_row_in_silence(opened: Opened, text: str) -> None:
    with pytest.raises(DataError, match=r"quotation mark|values for the 2 columns"):
        read_words(opened(text), "b", "a")


def test_cells_of_several_lines_are_read_as_they_are(opened: Opened) -> None:
    found, keys = read_words(opened('a,b\n1,"x\ny"\n\n2,z\n'), "b", "a")
    assert (found.words, keys) == (("x\ny", "z"), ("1", "2"))


data = TypeAdapter(DataConfig).validate_python
LINES = ["id,town,size", *(f"k{row},{'abc'[row % 3]},{row}.5" for row in range(300))]


def read(folder: Path, lines: list[str], *, name: str = "t.csv", **more: str) -> Features:
    if lines:
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_features(data({"source": "csv", "path": name, "key": "id", **more}), PartyIndex(0, 1), folder)


@pytest.mark.parametrize(
    "above", [["sep=,"], ["SEP=,"], ['"sep=,"'], ["# export of 2026-11-01"], ["# one", "#two, with a comma"], ["#"],
    ["sep=,", "# one"], ["# one", "sep=,"], ["# one", ""], ["", "# one"], ["", "sep=,"],
    ["  ", "#one", " ", "#two", ""]])  # fmt: skip
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_notes_above_the_header_are_no_rows(tmp_path: Path, above: list[str], bom: str) -> None:
    whole = read(tmp_path, LINES)
    found = read(tmp_path, [bom + above[0], *above[1:], *LINES])
    assert found.fingerprint == whole.fingerprint
    line = 9 + len(above)
    with pytest.raises(DataError, match=rf"t\.csv, line {line}, column 'size': 'x' is no number"):
        read(tmp_path, [*above, *LINES[:8], "k7,b,x", *LINES[9:]])


@pytest.mark.parametrize("last", ["   ", "\x1a", "\t"])
def test_a_line_of_white_space_or_a_closing_control_z_is_no_row(tmp_path: Path, last: str) -> None:
    assert read(tmp_path, [*LINES, last]).fingerprint == read(tmp_path, LINES).fingerprint
    with pytest.raises(DataError, match=r"t\.csv, line 11, column 'size': 'x' is no number"):
        read(tmp_path, [*LINES[:8], last, "", "k7,b,x", *LINES[9:]])


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_the_delimiter_that_a_file_names_is_its_own(tmp_path: Path, mark: str) -> None:
    found = read(tmp_path, [f"sep={mark}", *(line.replace(",", mark) for line in LINES)])
    assert found.fingerprint == read(tmp_path, LINES).fingerprint


def test_a_name_that_begins_with_a_hash_is_a_name(tmp_path: Path) -> None:
    lines = ["#id,town,size", *LINES[1:]]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    config = data({"source": "csv", "path": "t.csv", "key": "#id"})
    assert len(load_features(config, PartyIndex(0, 1), tmp_path).values) == 300


def test_a_comment_between_rows_is_refused_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 5: 1 values for the 3 columns") as refused:
        read(tmp_path, [*LINES[:4], "# a comment", *LINES[4:]])
    assert "take the line away" in refused.value.hint
    read(tmp_path, LINES)


@pytest.mark.parametrize(("end", "bom"), [("\n", ""), ("\r\n", ""), ("\n", "\ufeff")])
def test_lines_in_quotation_marks_are_bared_by_the_command_of_the_hint(tmp_path: Path, end: str, bom: str) -> None:
    lines = [line.replace("k5,c", 'k5,""c""') for line in LINES]
    (tmp_path / "a b.csv").write_bytes((bom + end.join(f'"{line}"' for line in lines) + end).encode())
    with pytest.raises(DataError, match=r"line 1: the line stands in quotation marks as a whole") as refused:
        read(tmp_path, [], name="a b.csv")
    (command,) = re.findall(r"`(sed .*?)`", refused.value.hint)
    subprocess.run(command, shell=True, check=True)
    assert read(tmp_path, [], name="a b-unquoted.csv").fingerprint == read(tmp_path, LINES).fingerprint


@pytest.mark.parametrize("row", [1, 100, 299])
@pytest.mark.parametrize("column", ["town", "size"])
def test_a_lone_quotation_mark_is_found_and_its_removal_cures(tmp_path: Path, row: int, column: str) -> None:
    cells = LINES[row].split(",")
    place = LINES[0].split(",").index(column)
    cells[place] = '"' + cells[place]
    lines = [*LINES[:row], ",".join(cells), *LINES[row + 1 :]]
    with pytest.raises(DataError, match=rf"t\.csv, line {row + 1}, column '{column}': ") as refused:
        read(tmp_path, lines)
    assert "remove" in refused.value.hint and "quotation mark" in f"{refused.value} {refused.value.hint}"
    lines[row] = lines[row].replace('"', "")
    read(tmp_path, lines)


def test_keys_that_a_spreadsheet_has_shortened_are_said_to_be(tmp_path: Path) -> None:
    keys = [f"{4020000000000 + row * 1000003}" for row in range(300)]
    short = [key if row % 3 else f"{int(key):.3E}" for row, key in enumerate(keys)]
    with pytest.raises(
        DataError, match=r"numbers that a spreadsheet has shortened, so that .* keys stand in"
    ) as refused:
        read(tmp_path, [LINES[0], *(f"{key},a,{row}" for row, key in enumerate(short))])
    assert "write all digits again" in refused.value.hint


@pytest.mark.parametrize("mark", [",", "'", "’", " ", "\u202f"])
def test_keys_with_separators_of_thousands_are_said(tmp_path: Path, mark: str) -> None:
    keys = [f"{row * 7001 + 1000:,}".replace(",", mark) for row in range(300)]
    found = read(tmp_path, [LINES[0], *(f'"{key}",{"ab"[row % 2]},{row}' for row, key in enumerate(keys))])
    assert any("300 of 300 keys have separators of thousands" in str(doubt) for doubt in doubts(found))
