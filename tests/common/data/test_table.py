import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.data.table import CsvColumns, CsvFile, read_ids
from common.errors import DataError

Opened = Callable[..., CsvFile]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    def write(text: str | bytes, delimiter: str = ",") -> CsvFile:
        path = tmp_path / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return CsvFile.open(path, delimiter)

    return write


@given(rows=st.lists(st.lists(st.floats(-1e30, 1e30), min_size=3, max_size=3), min_size=1, max_size=9))
def test_reads_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, rows: list[list[float]]) -> None:
    path: Path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", newline="") as lines:
        csv.writer(lines).writerows([["a", "b", "c"], *rows])
    values = CsvFile.open(path, ",").numbers(["c", "a"])
    assert values.tolist() == [[c, a] for a, _, c in rows]
    assert values.dtype == torch.float64


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2.5\n", "a,b\r\n1,2.5\r\n", "\ufeffa,b\n1,2.5", '"a","b"\n"1"," 2.5 "\n\n', "a,b,c\n1,2.5,x\n"],
)
def test_ways_to_write_the_same(opened: Opened, text: str | bytes) -> None:
    assert opened(text).numbers(["a", "b"]).tolist() == [[1.0, 2.5]]


def test_another_delimiter(opened: Opened) -> None:
    assert opened("a;b\n1;2\n", ";").numbers(["b"]).tolist() == [[2.0]]


def test_words_and_ids(opened: Opened) -> None:
    file = opened("id,name\n7, Ann\n8,NA\n")
    assert file.words("name") == ["Ann", "NA"]
    assert CsvColumns(file, ("name",), "id").ids() == ("7", "8")
    assert read_ids(file, None) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n1,2\n", "is empty"),
        ("1,2\n3,4\n", "line 1: 1, 2 are numbers, not names"),
        ("a,a\n1,2\n", "line 1: two columns are called 'a'"),
        (b"a,b\xff\n1,2\n", "cannot be read"),
        ("a,b\n", "has a header but no rows"),
        ("a,b\n1,2\n3\n", "line 3: 1 values for the 2 columns"),
        ("a,b\n1,2\n\n3,4,5\n", "line 4: 3 values for the 2 columns"),
        ("a,b\n1,2\n3,x\n4,y\n", "line 3, column 'b': 'x' is no number"),
        ("a,b\n1,1_000\n", "line 2, column 'b': '1_000' is no number"),
        ("a,b\n1,2\n,3\n", "line 3, column 'a': the value is missing"),
        ("a,b\n1,?\n", "line 2, column 'b': the value is missing"),
        ("a,b\n1,NaN\n", "line 2, column 'b': the value is missing"),
        ("a,b\n1,2\n1,inf\n", "line 3, column 'b': 'inf' is not finite"),
        ("a,b\n1,1e999\n", "line 2, column 'b': '1e999' is not finite"),
        (b"a,b\n1,\xff\n", "cannot be read"),
    ],
)
def test_refuses_numbers(opened: Opened, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        opened(text).numbers(["a", "b"])
    assert caught.value.hint and "table.csv" in str(caught.value) and "\n" not in str(caught.value)


def test_the_first_fault_of_a_long_file_is_found(opened: Opened) -> None:
    lines = [f"{row},{row}" for row in range(200_000)]
    lines[150_000] = "1,oops"
    with pytest.raises(DataError, match="line 150002, column 'b': 'oops'"):
        opened("\n".join(["a,b", *lines])).numbers(["b"])


def test_a_byte_that_is_no_text_far_down(opened: Opened) -> None:
    with pytest.raises(DataError, match=r"cannot be read: .*can't decode byte 0xff"):
        opened(b"a,b\n" + b"1,2\n" * 50_000 + b"1,\xff\n").numbers(["b"])


def test_refuses_an_empty_word(opened: Opened) -> None:
    with pytest.raises(DataError, match="line 3, column 'b': the value is missing"):
        opened("a,b\n1,x\n2,\n").words("b")


def test_refuses_an_id_in_two_rows(opened: Opened) -> None:
    with pytest.raises(DataError, match="rows 1 and 3 have the same id 'x'"):
        read_ids(opened("id,a\nx,1\ny,2\nx,3\n"), "id")


def test_refuses_an_unknown_column(opened: Opened) -> None:
    with pytest.raises(DataError, match=r"no column 'agee' \(did you mean 'age'\?\)") as caught:
        opened("age,sex\n1,2\n").require(["sex", "agee"])
    assert "age, sex" in caught.value.hint
