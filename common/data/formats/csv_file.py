"""CSV tables. pyarrow reads them block by block, as text; on an error Python's reader goes through the file to find the
line.
"""

from __future__ import annotations

import codecs
import csv
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from colonnade.common.data.columns.cells import MISSING, NUMBER
from colonnade.common.data.table import refuse_twice
from colonnade.common.errors import DataError

BLOCK = 4 * 2**20  # bytes parsed together; larger than any row
_LINE = ord("\n")
_HINT = "save the table as CSV in UTF-8, or name the `source` that it is"
_MARKS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}  # delimiters and their names in a configuration

_NOTES = 100  # lines before a header that are looked at
_SEPARATOR = re.compile(r"""["']?sep=(.)["']?,*""", re.IGNORECASE)

_OTHERS = {
    b"PK\x03\x04": ("an Excel workbook or a zip file", "save the sheet as CSV in UTF-8, or unpack it"),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", "save the sheet as CSV in UTF-8"),
    b"\x1f\x8b": ("packed by gzip", "unpack it"),
    b"PAR1": ("a Parquet file", "say `source: parquet`"),
    b"ARROW1": ("an Arrow file", "say `source: arrow`"),
    b"\x93NUMPY": ("a numpy file", "say `source: npy`"),
    b"SQLite format 3": ("a SQLite database", "say `source: sql`, with a `url` and a `table`"),
}

csv.field_size_limit(BLOCK)  # Python's own limit is below pyarrow's: lines would be lost from its count


@dataclass(frozen=True)
class CsvFile:
    """A CSV file as a table; its header has been read.

    Args:
        skipped: lines before the header: comments (`# ..`), and a spreadsheet's note `sep=;`.
    """

    path: Path
    delimiter: str
    encoding: str
    header: tuple[str, ...]
    skipped: int = 0

    @classmethod
    def open(cls, path: Path, delimiter: str = ",", encoding: str = "utf-8") -> CsvFile:
        """Reads the header. Raises DataError if there is none, it is no line of names, or the encoding is another."""
        file = cls.headed(path, delimiter, encoding)
        where = file.place(-1)
        file._refuse_quoted_lines(where)
        _check_header(where, file.header)
        return file

    @classmethod
    def headed(cls, path: Path, delimiter: str = ",", encoding: str = "utf-8", names: Sequence[str] = ()) -> CsvFile:
        """`open` with any line as a header; `names` as of `notes_above`."""
        file = cls(path, delimiter, encoding, ())
        file._refuse_others()
        try:
            with file._opened() as lines:
                skipped, delimiter = notes_above(lines, delimiter, names)
            file = replace(file, skipped=skipped, delimiter=delimiter)
            header = next((tuple(row) for _, row in file._lines()), ())
        except UnicodeError:
            raise file._undecodable() from None
        except (OSError, csv.Error) as error:
            raise DataError(f"{path} cannot be read: {error}", hint=_HINT) from error
        if not header:
            raise DataError(f"{path} is empty", hint="the first line names the columns")
        file = replace(file, header=header)
        refuse_twice(file.place(-1), header)
        return file

    def _refuse_quoted_lines(self, where: str) -> None:
        """Raises DataError if each line is in quotation marks as a whole."""
        if len(self.header) != 1 or self.delimiter not in self.header[0]:
            return
        with self._opened() as lines:
            written = next((line.strip() for line in lines if line.strip()), "")
        if written.startswith('"') and written.endswith('"'):
            new = self.path.with_name(f"{self.path.stem}-unquoted{self.path.suffix}")
            bare = """sed '1s/^[^"]*//; s/^"//; s/"[^"]*$//; s/""/"/g'"""
            command = f"{bare} {quote(str(self.path))} > {quote(str(new))}"
            raise DataError(
                f"{where}: the line stands in quotation marks as a whole, and is one cell",
                hint=f"take the marks around the lines away, for example by `{command}`, and name that file as `path`",
            )

    def _refuse_others(self) -> None:
        """Raises DataError if the file is not text, or is UTF-8 where the configuration names another encoding."""
        try:
            with self.path.open("rb") as file:
                start = file.read(BLOCK)
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
        return (self.path,)

    def __str__(self) -> str:
        return str(self.path)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches(columns)
        except (pa.ArrowInvalid, OSError, UnicodeError) as error:
            raise self._fault(str(error).splitlines()[0]) from error

    def parsed(self, columns: Sequence[str], numbers: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """`batches` with the columns `numbers` as float64, null where `cells.MISSING` stands. See `ParsesNumbers`.

        pyarrow's own parser gives the same numbers to the last bit as its conversion of text does.
        """
        for batch in self._batches(columns, numbers):
            for name in numbers:
                if math.isnan(pc.sum(batch.column(name)).as_py() or 0.0):  # so is a sum with one: no mask is made
                    raise pa.ArrowInvalid("pyarrow reads NAN, in any letters, as a number")
            yield batch

    def _batches(self, columns: Sequence[str], numbers: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        types = dict.fromkeys(columns, pa.string()) | dict.fromkeys(numbers, pa.float64())
        rows = 0
        for batch in pa_csv.open_csv(
            self.path,
            read_options=pa_csv.ReadOptions(
                use_threads=bool(numbers) and pa.cpu_count() > 1,
                block_size=BLOCK,
                encoding=self.encoding,
                skip_rows=self.skipped,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                invalid_row_handler=lambda row: "skip" if is_blank(row.text or "") else "error",
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(columns), column_types=types, strings_can_be_null=False, null_values=list(MISSING)
            ),
        ):
            rows += len(batch)
            yield batch
        if rows != self._breaks() - 1 - self.skipped:
            self._check_quotes()

    def _breaks(self) -> int:
        count, last = 0, _LINE
        with self.path.open("rb") as file:
            while block := file.read(BLOCK):
                count, last = count + int(np.count_nonzero(np.frombuffer(block, np.uint8) == _LINE)), block[-1]
        return count + (last != _LINE)

    def _check_quotes(self) -> None:
        """Refuses quotation marks that swallow the following rows; cells of several lines are allowed."""
        begin = 1 + self.skipped
        with self._opened() as lines:
            reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
            while True:
                try:
                    row = next(reader, None)
                except csv.Error:
                    raise self._stray(begin) from None
                if row is None:
                    return
                if any("\n" in cell for cell in row) and _swallows(row, self.delimiter):
                    place = next(place for place, cell in enumerate(row) if "\n" in cell)
                    count = row[place].count("\n")
                    raise DataError(
                        f"{self.path}, line {begin}, column {self.header[place]!r}: a quotation mark begins a cell of "
                        f"{count + 1} lines, which look like {count + 1} rows",
                        hint=f"remove the stray quotation marks in the lines {begin} and {begin + count}; if it is one "
                        "cell, write it in one line",
                    )
                begin = reader.line_num + 1 + self.skipped

    def _stray(self, line: int) -> DataError:
        """Error about an unmatched quotation mark, or one within a cell."""
        with self._opened() as lines:
            cells = next(islice(lines, line - 1 - self.skipped, None), "").split(self.delimiter)
        place = next((place for place, cell in enumerate(cells) if cell.count('"') % 2), len(self.header))
        column = f", column {self.header[place]!r}" if place < len(self.header) else ""
        return DataError(
            f"{self.path}, line {line}{column}: a quotation mark lacks its partner, or stands within a cell",
            hint="remove it; if it belongs to the cell, put the cell in quotation marks and write it twice within",
        )

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

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """The header and every row from Python's reader, each with its first line number."""
        with self._opened() as lines:
            reader, begin = csv.reader(lines, delimiter=self.delimiter), 1 + self.skipped
            for row in reader:
                if row and not (len(row) == 1 < len(self.header) and row[0] and is_blank(row[0])):
                    yield begin, row
                begin = reader.line_num + 1 + self.skipped

    def _opened(self) -> TextIO:
        # A byte order mark at the beginning is not part of the first name.
        file = self.path.open(encoding="utf-8-sig" if self.encoding == "utf-8" else self.encoding, newline="")
        for _ in range(self.skipped):
            file.readline()
        return file

    def _fault(self, otherwise: str) -> DataError:
        """Error about the first broken line; `otherwise` if Python's reader finds none."""
        line = 1
        try:
            for line, row in self._lines():
                if len(row) != len(self.header):
                    return self._of_another_length(line, row)
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

    def _of_another_length(self, line: int, row: Sequence[str]) -> DataError:
        if any("\n" in cell for cell in row):
            return self._stray(line)
        hint = "mend the line (does a quotation mark lack its partner?); or name the table's `delimiter`"
        if len(row) == len(self.header) + 1 and not row[-1]:
            hint = "the line ends with a delimiter: take it away, or add one to the header and `drop: ['']`"
        elif row[0].startswith("#"):
            hint = "take the line away: comments are left out above the header alone"
        what = f"{len(row)} values for the {len(self.header)} columns of the header"
        return DataError(f"{self.path}, line {line}: {what}", hint=hint)

    def _too_long(self, line: int) -> DataError:
        return DataError(
            f"{self.path}, after line {line}: a row of more than {BLOCK // 2**20} MB",
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
                    return DataError(said, hint=f"{_HINT}; or name the table's `encoding`, as cp1252 (Windows)")
        return DataError(f"{path} is not {name}", hint=f"{_HINT}; or name the table's `encoding`")


def notes_above(opened: Iterable[str], delimiter: str, names: Sequence[str] = ()) -> tuple[int, str]:
    """The number of lines above a file's header (comments, `sep=;` and blank lines), and the delimiter after them.

    Args:
        names: that a file with one column may have; the line above one of them is no name.
    """
    lines = [line.rstrip("\r\n") for line in islice(opened, _NOTES)]
    skipped = 0
    for place, line in enumerate(lines):
        following = next(filter(str.strip, lines[place + 1 :]), "")
        if note := _SEPARATOR.fullmatch(line):
            delimiter = note[1]
        elif not line.strip():
            pass
        elif not line.startswith("#") or line.count(delimiter) == following.count(delimiter) > 0:
            break
        elif not (delimiter in line + following or following.startswith("#") or following.strip(' "') in names):
            break  # one column, the name of which begins with #
        skipped += 1
    return skipped, delimiter


def is_blank(line: str) -> bool:
    """True for white space alone, and for the Ctrl-Z that ends files of DOS."""
    return not line.strip(" \t\r\n\x1a")


def _check_header(where: str, header: Sequence[str]) -> None:
    if any("\0" in name for name in header):
        raise DataError(f"{where}: a NUL byte in a name", hint=f"{_HINT}; for UTF-16 say `encoding: utf-16`")
    if len(header) == 1 and (marks := [mark for mark in _MARKS if mark in header[0]]):
        mark = max(marks, key=header[0].count)
        raise DataError(
            f"{where}: the one column {header[0][:60]!r}",
            hint=f"if it is several, say `delimiter: {_MARKS[mark]}`; if not, rename it",
        )
    if all(NUMBER.fullmatch(name.strip()) for name in header):
        raise DataError(
            f"{where}: {', '.join(header[:4])} are numbers, not names",
            hint="put a line with the columns' names above the rows",
        )


def _swallows(row: Sequence[str], delimiter: str) -> bool:
    """True if a cell of several lines has as many delimiters in each as rows would have: two stray marks made it.

    The mark that begins it is in the same column as the one that ends it, else the row would be of another length.
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
