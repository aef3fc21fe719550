"""A table whose numbers the CSV parser converts, against the same table read cell by cell: equal, or wrong alike."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.data.columns.cells import PLAIN, Notation
from colonnade.common.data.columns.features import Features
from colonnade.common.data.formats import csv_file
from colonnade.common.data.formats.csv_file import CsvFile
from colonnade.common.data.table import ParsesNumbers, TableColumns, _Types
from colonnade.common.errors import DataError

NAMES = ("a", "b", "c")
CELLS = [
    "1", "2.5", "-3e-7", "+4", " 5 ", "\t6", "7\n", "\u00a08", ".5", "5.", "0x1", "1_0", "1e400", "-1e400", "1e-400",
    "inf", "nan", "NaN", "-nan", "NA", " NA ", "N/A", "null", "?", "", " ", "Ulm", "3,5", "1.234,5", "1,234", "007",
    "123456789012345678", "0.1", "179769313486231580793e289", "4.9e-324", "2024-03-01", "true", '"', "ja", "12 %",
]  # fmt: skip


@dataclass(frozen=True)
class Slow:
    """The table without its own conversion of numbers."""

    file: CsvFile

    @property
    def header(self) -> tuple[str, ...]:
        return self.file.header

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self.file.batches(columns)

    def place(self, row: int) -> str:
        return self.file.place(row)

    def __str__(self) -> str:
        return str(self.file)


def outcome(table: CsvFile | Slow, *, gaps: bool, notation: Notation, types: dict[str, str]) -> object:
    try:
        found = TableColumns(table, NAMES, "id", types, gaps, notation).features()
    except DataError as error:
        return str(error), error.hint
    return told(found)


def told(found: Features) -> object:
    return found.values.numpy().tobytes(), found.ids, found.fields, found.doubts, found.fingerprint


def both(file: CsvFile, *, gaps: bool = True, notation: Notation = PLAIN, **types: str) -> object:
    fast, slow = (outcome(table, gaps=gaps, notation=notation, types=types) for table in (file, Slow(file)))
    assert fast == slow
    return fast


def write(path: Path, rows: Sequence[Sequence[str]], quoting: int = csv.QUOTE_MINIMAL) -> CsvFile:
    with path.open("w", newline="") as lines:
        csv.writer(lines, quoting=quoting).writerows(  # type: ignore[call-overload]
            [["id", *NAMES], *([f"row{number}", *row] for number, row in enumerate(rows))]
        )
    return CsvFile.open(path)


def test_only_one_of_them_converts_numbers(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", [["1", "2", "3"]])
    assert isinstance(file, ParsesNumbers) and not isinstance(Slow(file), ParsesNumbers)


NUMBER = st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers(-(10**20), 10**20).map(str)


@given(
    rows=st.lists(st.tuples(*[NUMBER | NUMBER | st.sampled_from(CELLS)] * 3), min_size=1, max_size=30),
    gaps=st.booleans(),
    notation=st.sampled_from([PLAIN, Notation(",", "."), Notation(".", ",")]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_any_table(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    gaps: bool,
    notation: Notation,
    quoting: int,
) -> None:
    both(write(tmp_path_factory.mktemp("csv") / "t.csv", rows, quoting), gaps=gaps, notation=notation)


@pytest.mark.parametrize("cell", CELLS)
def test_one_odd_cell_among_numbers(tmp_path: Path, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "BLOCK", 256)  # types are found in the first block
    rows = [[f"{number / 7}", str(number), "x"] for number in range(60)]
    rows[45][1] = cell
    for gaps in (True, False):
        both(write(tmp_path / "t.csv", rows), gaps=gaps)
        both(write(tmp_path / "t.csv", rows), gaps=gaps, b="number", c="category")


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("row40,", "row39,"),  # a key twice
        ("row40,", ",row40"),  # none
        ("row40,", "row40"),  # a value too few
        ("row40,", "row40,1,"),  # one too many
        ("row40,", '"row40,'),  # a quotation mark without its partner
        ("row40,", '"row\n40",'),  # a row of two lines
        ("row40,", "row40\0,"),
        ("row40,", "row40" + 5000 * "x" + ","),
    ],
)
def test_faults_that_no_cell_has(tmp_path: Path, was: str, now: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "BLOCK", 512)
    path = tmp_path / "t.csv"
    file = write(path, [[f"{number / 7}", str(number), "x"] for number in range(90)])
    path.write_text(path.read_text().replace(was, now))
    both(file)


def test_numbers_of_many_blocks_are_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "BLOCK", 512)
    file = write(tmp_path / "t.csv", [[f"{number / 7}", str(number), "xyz"[number % 3]] for number in range(900)])
    found = TableColumns(file, NAMES, "id").features()
    assert told(found) == told(TableColumns(Slow(file), NAMES, "id").features())
    assert found.values[:, 0].tolist() == [number / 7 for number in range(900)]
    assert found.values.is_contiguous() and found.values.dtype == torch.float64
    assert [field.words for field in found.fields] == [None, None, ("x", "y", "z")]


def test_a_table_with_a_cell_that_the_parser_refuses_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, real = list[bool](), TableColumns._quickly

    def quickly(self: TableColumns, types: _Types, numbers: Sequence[str]) -> Features | None:
        features = real(self, types, numbers)
        found.append(features is not None)
        return features

    monkeypatch.setattr(TableColumns, "_quickly", quickly)
    for cell in ("1.5", " 1.5\t", "NA", "\u00a01.5", "+1.5"):
        both(write(tmp_path / "t.csv", [["1", "2", "3"], [cell, "2", "3"], ["1", "2", "3"]]))
    assert found == [True, True, True, False, True]
