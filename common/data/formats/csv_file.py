"""Tables in CSV: a header line, then one row a line.

pyarrow reads them block by block, as text. On an error Python's own reader goes through the file again to find the
line.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from colonnade.common.data.columns.cells import MISSING
from colonnade.common.data.columns.notation import NUMBER
from colonnade.common.data.formats.names import refuse_twice
from colonnade.common.errors import DataError

_BLOCK = 4 * 2**20  # bytes parsed together; larger than any row
_LINE = ord("\n")
_HINT = "save the table as CSV in UTF-8, or name the `source` that it is"
_MARKS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}  # delimiters and their names in a configuration

_OTHERS = {
    b"PK\x03\x04": ("an Excel workbook or a zip file", "save the sheet as CSV in UTF-8, or unpack it"),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", "save the sheet as CSV in UTF-8"),
    b"\x1f\x8b": ("packed by gzip", "unpack it"),
    b"PAR1": ("a Parquet file", "say `source: parquet`"),
    b"ARROW1": ("an Arrow file", "say `source: arrow`"),
    b"\x93NUMPY": ("a numpy file", "say `source: npy`"),
    b"SQLite format 3": ("a SQLite database", "say `source: sql`, with a `url` and a `table`"),
}

csv.field_size_limit(_BLOCK)  # Python's own limit is below pyarrow's: lines would be lost from its count


@dataclass(frozen=True)
class CsvFile:
    """A CSV file as a table; its header has been read."""

    path: Path
    delimiter: str
    encoding: str
    header: tuple[str, ...]

    @classmethod
    def open(cls, path: Path, delimiter: str = ",", encoding: str = "utf-8") -> CsvFile:
        """Reads the header.

        Raises:
            DataError: the file is empty or in another encoding, or its first line is no header.
        """
        file = cls(path, delimiter, encoding, ())
        file._refuse_others()
        try:
            with file._opened() as lines:
                reader = csv.reader(lines, delimiter=delimiter)
                header = tuple(next(filter(None, reader), ()))  # blank lines may stand before it
                line = max(reader.line_num, 1)
        except UnicodeError:
            raise file._undecodable() from None
        except (OSError, csv.Error) as error:
            raise DataError(f"{path} cannot be read: {error}", hint=_HINT) from error
        _check_header(path, header, line)
        return replace(file, header=header)

    def _refuse_others(self) -> None:
        """Raises DataError if the file is not text, or is UTF-8 where the configuration names another encoding."""
        try:
            with self.path.open("rb") as file:
                start = file.read(_BLOCK)
        except OSError as error:
            raise DataError(f"{self.path} cannot be read: {error.strerror}", hint=_HINT) from error
        for magic, (what, hint) in _OTHERS.items():
            if start.startswith(magic):
                raise DataError(f"{self.path} is {what}, and no CSV", hint=hint)
        if self.encoding != "utf-8" and not start.isascii() and _is_utf8(start):
            raise DataError(
                f"{self.path} is UTF-8, and its `encoding` is said to be {self.encoding}", hint="leave `encoding` out"
            )

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)

    def __str__(self) -> str:
        """Its path."""
        return str(self.path)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns as text. Raises DataError if a line is broken, or the file is not UTF-8."""
        try:
            yield from self._batches(columns)
        except (pa.ArrowInvalid, OSError, UnicodeError) as error:
            raise self._fault(str(error).splitlines()[0]) from error

    def parsed(self, columns: Sequence[str], numbers: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The columns as text, these as float64; null where `cells.MISSING` stands. See `ParsesNumbers`.

        pyarrow's own parser gives the same numbers to the last bit as its conversion of text does.
        """
        for batch in self._batches(columns, numbers):
            for name in numbers:
                if pc.any(pc.is_nan(batch.column(name))).as_py():
                    raise pa.ArrowInvalid("pyarrow reads NAN, in any letters, as a number")
            yield batch

    def _batches(self, columns: Sequence[str], numbers: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        types = dict.fromkeys(columns, pa.string()) | dict.fromkeys(numbers, pa.float64())
        rows = 0
        for batch in pa_csv.open_csv(
            self.path,
            read_options=pa_csv.ReadOptions(
                use_threads=bool(numbers) and pa.cpu_count() > 1, block_size=_BLOCK, encoding=self.encoding
            ),
            parse_options=pa_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(columns), column_types=types, strings_can_be_null=False, null_values=list(MISSING)
            ),
        ):
            rows += len(batch)
            yield batch
        if rows != self._breaks() - 1:
            self._check_quotes()

    def _breaks(self) -> int:
        """Lines of the file."""
        count, last = 0, _LINE
        with self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                count, last = count + int(np.count_nonzero(np.frombuffer(block, np.uint8) == _LINE)), block[-1]
        return count + (last != _LINE)

    def _check_quotes(self) -> None:
        """Rejects quotation marks that swallow the following rows; rows of several lines are allowed."""
        line = 1
        try:
            for begin, row in self._lines(strict=True):
                line = begin
                if any("\n" in cell for cell in row) and _swallows(row, self.delimiter):
                    place = next(place for place, cell in enumerate(row) if "\n" in cell)
                    count = row[place].count("\n")
                    raise DataError(
                        f"{self.path}, line {begin}, column {self.header[place]!r}: a quotation mark begins a cell of "
                        f"{count + 1} lines, which look like {count + 1} rows",
                        hint=f"remove the stray quotation marks in the lines {begin} and {begin + count}; if it is one "
                        "cell, write it in one line",
                    )
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
            pass  # an unclosed quotation mark, which pyarrow closes at the end of the file
        return f"{self.path}, after line {line}"

    def _lines(self, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """The header and every row from Python's reader, each with its first line number."""
        with self._opened() as lines:
            reader, begin = csv.reader(lines, delimiter=self.delimiter, strict=strict), 1
            for row in reader:
                if row:
                    yield begin, row
                begin = reader.line_num + 1

    def _opened(self) -> TextIO:
        # A byte order mark at the beginning is not part of the first name.
        return self.path.open(encoding="utf-8-sig" if self.encoding == "utf-8" else self.encoding, newline="")

    def _fault(self, otherwise: str) -> DataError:
        """Error for the first broken line; `otherwise` if Python's reader finds nothing."""
        line = 1
        try:
            for line, row in self._lines():
                if len(row) != len(self.header):
                    hint = "mend the line (does a quotation mark lack its partner?), or name the `delimiter`"
                    if len(row) == len(self.header) + 1 and not row[-1]:
                        hint = "the line ends with a delimiter: take it away, or add one to the header and `drop: ['']`"
                    return DataError(
                        f"{self.path}, line {line}: {len(row)} values for the {len(self.header)} columns of the header",
                        hint=hint,
                    )
        except csv.Error as error:
            if "larger than field limit" in str(error):
                return self._too_long(line)
            return DataError(
                f"{self.path}, after line {line}: {error}", hint="does a quotation mark lack its partner there?"
            )
        except UnicodeError:
            return self._undecodable()
        except OSError as error:
            otherwise = str(error)
        if "straddling" in otherwise:
            return self._too_long(line)
        return DataError(f"{self.path} cannot be read: {otherwise}", hint=_HINT)

    def _too_long(self, line: int) -> DataError:
        return DataError(
            f"{self.path}, after line {line}: a row of more than {_BLOCK // 2**20} MB",
            hint="does a quotation mark lack its partner there? If not, leave such texts out of the table",
        )

    def _undecodable(self) -> DataError:
        """Error that names the line with a byte outside the encoding."""
        path, name = self.path, self.encoding.upper()
        with path.open("rb") as file:
            if file.read(2) in (b"\xff\xfe", b"\xfe\xff") and self.encoding == "utf-8":
                return DataError(f"{path} is UTF-16, not UTF-8", hint="say `encoding: utf-16`, or save it in UTF-8")
            file.seek(0)
            # In encodings with wider characters, lines are not lines of bytes.
            for number, raw in enumerate(file if self.encoding[:6] not in ("utf-16", "utf-32") else (), start=1):
                try:
                    raw.decode(self.encoding)
                except UnicodeDecodeError as wrong:
                    said = f"{path}, line {number}: byte 0x{raw[wrong.start]:02x} is not {name}"
                    return DataError(said, hint=f"name its `encoding`, for example cp1252 (Windows); or {_HINT}")
        return DataError(f"{path} is not {name}", hint=f"name its `encoding`; or {_HINT}")


def _check_header(path: Path, header: Sequence[str], line: int) -> None:
    if not header:
        raise DataError(f"{path} is empty", hint="the first line names the columns")
    if header[0].startswith("sep="):
        mark = header[0].removeprefix("sep=") or ";"
        raise DataError(
            f"{path}, line {line}: {header[0]!r} is a note for Excel, and no header",
            hint=f"take the line away and say `delimiter: {_MARKS.get(mark, repr(mark))}`",
        )
    if any("\0" in name for name in header):
        raise DataError(
            f"{path}, line {line}: a NUL byte in a name", hint=f"{_HINT}; for UTF-16 say `encoding: utf-16`"
        )
    if len(header) == 1 and (marks := [mark for mark in _MARKS if mark in header[0]]):
        mark = max(marks, key=header[0].count)
        raise DataError(
            f"{path}, line {line}: the one column {header[0][:60]!r}",
            hint=f"if it is several, say `delimiter: {_MARKS[mark]}`; if not, rename it",
        )
    if all(_is_number(name) for name in header):
        raise DataError(
            f"{path}, line {line}: {', '.join(header[:4])} are numbers, not names",
            hint="put a line with the columns' names above the rows",
        )
    refuse_twice(f"{path}, line {line}", header)


def _swallows(row: Sequence[str], delimiter: str) -> bool:
    """True if a cell of several lines has as many delimiters in each as rows would have: two stray marks made it.

    The mark that begins it stands in the same column as the one that ends it, else the row would be of another length.
    """
    for place, cell in enumerate(row):
        if "\n" in cell:
            first, *whole, last = (line.count(delimiter) for line in cell.split("\n"))
            if (first, last) == (len(row) - 1 - place, place) and set(whole) <= {len(row) - 1}:
                return True
    return False


def _is_utf8(start: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # a character cut off at the end does not count
    except UnicodeDecodeError:
        return False
    return True


def _is_number(cell: str) -> bool:
    return NUMBER.fullmatch(cell.strip()) is not None
