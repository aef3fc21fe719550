"""Tables in CSV: a header line, then one row a line.

pyarrow reads them, block by block and as text. Only when something is wrong does Python's own reader go through the
file again, to say in which line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from common.errors import DataError

_BLOCK = 4 * 2**20  # bytes that are parsed together
_HINT = "save the table as CSV in UTF-8, or name the `source` that it is"


@dataclass(frozen=True)
class CsvFile:
    """A CSV file as a table; its header has been read."""

    path: Path
    delimiter: str
    header: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, delimiter: str = ",") -> CsvFile:
        """Reads the header.

        Raises:
            DataError: the file is empty or not UTF-8, or its first line is no header.
        """
        try:
            with path.open(encoding="utf-8-sig", newline="") as lines:
                header = tuple(next(csv.reader(lines, delimiter=delimiter), ()))
        except UnicodeDecodeError:
            raise _not_utf8(path) from None
        except (OSError, csv.Error) as error:
            raise DataError(f"{path} cannot be read: {error}", hint=_HINT) from error
        _check_header(path, header)
        return cls(path, delimiter, header)

    def __str__(self) -> str:
        """Its path."""
        return str(self.path)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns as text. Raises DataError if a line is broken, or the file is not UTF-8."""
        convert = pa_csv.ConvertOptions(
            include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string()), strings_can_be_null=False
        )
        rows = 0
        try:
            for batch in pa_csv.open_csv(
                self.path,
                read_options=pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK),
                parse_options=pa_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=convert,
            ):
                rows += len(batch)
                yield batch
        except (pa.ArrowInvalid, OSError) as error:
            raise self._fault(str(error).splitlines()[0]) from error
        if rows != self._breaks() - 1:
            self._check_quotes()

    def _breaks(self) -> int:
        """Lines of the file."""
        count, last = 0, b"\n"
        with self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                count, last = count + block.count(b"\n"), block[-1:]
        return count + (last != b"\n")

    def _check_quotes(self) -> None:
        """Rows of several lines are fine, unless a quotation mark lacks its partner and swallows those that follow."""
        line = 1
        try:
            for begin, _ in self._lines(strict=True):
                line = begin
        except csv.Error:
            raise DataError(
                f"{self.path}, after line {line}: a quotation mark lacks its partner, or stands within a cell",
                hint="mend the line; within quotation marks one of their kind is written twice",
            ) from None

    def place(self, row: int) -> str:
        """`FILE, line 7`: where the row begins."""
        line = 1
        try:
            for number, (line, _) in enumerate(self._lines(), start=-1):
                if number == row:
                    return f"{self.path}, line {line}"
        except csv.Error:
            pass  # a quotation mark that nothing closes, which pyarrow closes at the end of the file
        return f"{self.path}, after line {line}"

    def _lines(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """The header and every row as Python's reader has it, with the line that it begins in."""
        with self.path.open(encoding="utf-8-sig", newline="") as lines:
            reader, begin = csv.reader(lines, delimiter=self.delimiter, strict=strict), 1
            for row in reader:
                if row:
                    yield begin, row
                begin = reader.line_num + 1

    def _fault(self, otherwise: str) -> DataError:
        """What is wrong with the first broken line; `otherwise` if Python's reader finds nothing."""
        line = 1
        try:
            for line, row in self._lines():
                if len(row) != len(self.header):
                    return DataError(
                        f"{self.path}, line {line}: {len(row)} values for the {len(self.header)} columns of the header",
                        hint="mend the line (does a quotation mark lack its partner?), or name the `delimiter`",
                    )
        except csv.Error as error:
            return DataError(
                f"{self.path}, after line {line}: {error}", hint="does a quotation mark lack its partner there?"
            )
        except UnicodeDecodeError:
            return _not_utf8(self.path)
        except OSError as error:
            otherwise = str(error)
        return DataError(f"{self.path} cannot be read: {otherwise}", hint=_HINT)


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


def _not_utf8(path: Path) -> DataError:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                raw.decode()
            except UnicodeDecodeError as wrong:
                return DataError(f"{path}, line {number}: byte 0x{raw[wrong.start]:02x} is not UTF-8", hint=_HINT)
    return DataError(f"{path} cannot be read: it has changed meanwhile", hint=_HINT)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python alone reads 1_000
