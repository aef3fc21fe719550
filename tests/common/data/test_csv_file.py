import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.data.columns.features import Features
from colonnade.common.data.formats.csv_file import CsvFile
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
