"""Tables in CSV: a header line, then one row a line.

pyarrow reads them. Only when it finds something wrong does Python's own reader go through the
file again, to say which line, which column and which value.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from common.data.split import Part, Shape
from common.errors import DataError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""What counts as a missing number. A missing word is an empty one only."""


@dataclass(frozen=True)
class CsvFile:
    """A CSV file whose header has been read."""

    path: Path
    delimiter: str
    header: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, delimiter: str) -> CsvFile:
        """Reads the header.

        Raises:
            DataError: the file is empty or not UTF-8, or its first line is no header.
        """
        try:
            with path.open(encoding="utf-8-sig", newline="") as lines:
                header = tuple(next(csv.reader(lines, delimiter=delimiter), ()))
        except (UnicodeDecodeError, OSError, csv.Error) as error:
            raise DataError(f"{path} cannot be read: {error}", hint="save the table as CSV in UTF-8") from error
        _check_header(path, header)
        return cls(path, delimiter, header)

    def require(self, columns: Sequence[str]) -> None:
        """Raises DataError unless the file has all these columns."""
        for column in columns:
            if column not in self.header:
                raise DataError(
                    f"{self.path} has no column {column!r}{nearest(column, self.header)}",
                    hint=f"its {len(self.header)} columns begin with {', '.join(self.header[:6])}",
                )

    def numbers(self, columns: Sequence[str]) -> Tensor:
        """(n, k) float64, finite.

        Raises:
            DataError: a line is broken, or a cell is missing, no number or not finite.
        """
        import pyarrow as pa  # noqa: PLC0415  the server of an image run never needs it

        table = self._read(columns, pa.float64(), MISSING)
        values = np.empty((table.num_rows, len(columns)))
        for place, column in enumerate(columns):
            values[:, place] = table.column(column).to_numpy()
        if not np.isfinite(values).all():
            raise self._fault(columns, "it holds a number that is not finite", numeric=True)
        return torch.from_numpy(values)

    def words(self, column: str) -> list[str]:
        """The column's n cells without the spaces around them.

        Raises:
            DataError: a line is broken or a cell is empty.
        """
        import pyarrow as pa  # noqa: PLC0415

        cells: list[str] = self._read([column], pa.string(), ("",)).column(column).to_pylist()
        return [cell.strip() for cell in cells]

    def _read(self, columns: Sequence[str], kind: pa.DataType, missing: Sequence[str]) -> pa.Table:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.csv as pa_csv  # noqa: PLC0415

        numeric = kind == pa.float64()
        convert = pa_csv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, kind),
            null_values=list(missing),
            strings_can_be_null=True,
        )
        try:
            table = pa_csv.read_csv(
                self.path,
                read_options=pa_csv.ReadOptions(use_threads=False),
                parse_options=pa_csv.ParseOptions(delimiter=self.delimiter),
                convert_options=convert,
            )
        except pa.ArrowInvalid as error:
            raise self._fault(columns, str(error).splitlines()[0], numeric=numeric) from error
        if not table.num_rows:
            raise DataError(f"{self.path} has a header but no rows", hint="a row is one line below the header")
        if any(table.column(column).null_count for column in columns):
            raise self._fault(columns, "a value is missing", numeric=numeric)
        return table

    def _fault(self, columns: Sequence[str], otherwise: str, *, numeric: bool) -> DataError:
        """What is wrong with the first wrong line; `otherwise` if Python's reader finds nothing."""
        places = [(column, self.header.index(column)) for column in columns]
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as lines:
                reader = csv.reader(lines, delimiter=self.delimiter)
                next(reader)
                for row in filter(None, reader):
                    where = f"{self.path}, line {reader.line_num}"
                    if len(row) != len(self.header):
                        return DataError(
                            f"{where}: {len(row)} values for the {len(self.header)} columns of the header",
                            hint="mend the line, or name the `delimiter`",
                        )
                    for column, place in places:
                        if fault := _cell_fault(row[place], numeric=numeric):
                            return DataError(f"{where}, column {column!r}: {fault[0]}", hint=fault[1])
        except (UnicodeDecodeError, csv.Error) as error:
            otherwise = str(error)
        return DataError(f"{self.path} cannot be read: {otherwise}", hint="save the table as CSV in UTF-8")


@dataclass(frozen=True)
class CsvColumns:
    """The columns of a CSV file as a source.

    Args:
        file: the file.
        names: the columns that are features.
        id: the column that says who a row is about, if there is one.
    """

    file: CsvFile
    names: tuple[str, ...]
    id: str | None = None
    official_test: int = 0

    @property
    def shape(self) -> Shape:
        """(columns,)."""
        return (len(self.names),)

    def read(self, part: Part) -> Tensor:
        """(n, k) float64. Raises DataError as `CsvFile.numbers` does."""
        return self.file.numbers(part.pick(self.names))

    def ids(self) -> tuple[str, ...] | None:
        """The id column. Raises DataError as `read_ids` does."""
        return read_ids(self.file, self.id)


def read_ids(file: CsvFile, column: str | None) -> tuple[str, ...] | None:
    """The cells of an id column, or None without one.

    Raises:
        DataError: a cell is empty or stands in two rows.
    """
    if column is None:
        return None
    first: dict[str, int] = {}
    words = file.words(column)
    for row, word in enumerate(words, start=1):
        if first.setdefault(word, row) != row:
            raise DataError(
                f"{file.path}, column {column!r}: rows {first[word]} and {row} have the same id {word!r}",
                hint="an id names one row",
            )
    return tuple(words)


def _check_header(path: Path, header: Sequence[str]) -> None:
    if not header:
        raise DataError(f"{path} is empty", hint="the first line names the columns")
    if all(_is_number(name) for name in header):
        raise DataError(
            f"{path}, line 1: {', '.join(header[:4])} are numbers, not names",
            hint="put a line with the columns' names above the rows",
        )
    for place, name in enumerate(header):
        if name in header[:place]:
            raise DataError(f"{path}, line 1: two columns are called {name!r}", hint="rename one of them")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python alone reads 1_000


def _cell_fault(cell: str, *, numeric: bool) -> tuple[str, str] | None:
    """What is wrong with a cell and what to do, or None."""
    word = cell.strip()
    if word in (MISSING if numeric else ("",)):
        return "the value is missing", "fill it in or leave the row out, at every party"
    if numeric and not _is_number(word):
        return f"{word!r} is no number", "encode words as numbers, or leave the column out with `drop`"
    if numeric and not math.isfinite(float(word)):
        return f"{word!r} is not finite", "put a number in its place"
    return None
