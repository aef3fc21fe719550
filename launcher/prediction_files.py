"""CSV files of ids and of predictions, neither of which has to fit into memory."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from colonnade.common.data.known_sets.places import refuse_unusable
from colonnade.common.errors import DataError, EnvironmentFault, InputError, nearest
from colonnade.common.runtime.durable import write_durably

_COLUMN = "id"  # as files of predictions have it


@dataclass(frozen=True)
class PredictionIds:
    """A CSV file with a column of ids.

    Args:
        path: the file.
        key: the column's name; "" takes the one that is called `like`, or an only one that is called `id`.
        like: the server's name for its column of ids.
    """

    path: Path
    key: str = ""
    like: str = ""

    def ids(self) -> Iterator[str]:
        """One after the other, as they are written.

        Raises:
            DataError: the file cannot be read, has no such column, or a line is broken.
        """
        self._refuse_unusable()
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as lines:
                reader = csv.reader(lines)
                header = next(reader, [])
                place = self._place(header)
                for row in reader:
                    if len(row) != len(header):
                        raise DataError(
                            f"{self.path}, line {reader.line_num}: {len(row)} values for the {len(header)} columns "
                            "of the header",
                            hint="mend the line",
                        )
                    if not (id := row[place]).strip():
                        raise DataError(
                            f"{self.path}, line {reader.line_num}: the id is missing",
                            hint="fill it in, or leave it out",
                        )
                    yield id
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{self.path} cannot be read: {error}", hint="give --ids a CSV file in UTF-8") from error

    def count(self) -> int:
        """Number of ids. Raises as `ids`."""
        return sum(1 for _ in self.ids())

    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with the file. Raises DataError."""
        self._refuse_unusable()
        with self.path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:16]

    def _place(self, header: list[str]) -> int:
        if not header:
            raise DataError(f"{self.path} is empty", hint="its first line names the columns, one of which holds ids")
        for wanted in filter(None, (self.key, self.like)):
            if wanted in header:
                return header.index(wanted)
            if self.key:
                raise DataError(f"{self.path} has no column {wanted!r}{nearest(wanted, header)}", hint="see --key")
        if len(header) > 1:
            raise DataError(
                f"{self.path} has the columns {', '.join(header[:6])}", hint="say which of them holds ids: --key NAME"
            )
        if header[0].strip() == _COLUMN:
            return 0
        # It may be a name that we do not know, or the first id of a file without a header: nobody is left out unsaid.
        name = self.like or _COLUMN
        raise DataError(
            f"{self.path}, line 1: {header[0]!r} is not known as the name of a column of ids",
            hint=f"if it is an id, put a line `{name}` above it; if it names the column, say --key NAME",
        )

    def _refuse_unusable(self) -> None:
        if not self.path.exists() and not self.path.is_symlink():
            raise DataError(f"{self.path}: there is no such file", hint="give --ids a CSV file")
        refuse_unusable(self.path)


class Predictions:
    """The file of predictions, written line by line to a partial file and moved into place.

    A file that an earlier start left unfinished is continued: no id is predicted twice.

    Args:
        path: of the finished file.
        header: its columns.
        token: identifies the inputs; a partial file of another token is overwritten.

    Attributes:
        unknown: number of lines without a prediction, those of an earlier start included.
    """

    def __init__(self, path: Path, header: Sequence[str], token: str) -> None:
        self._path, self._header, self._token = path, header, token
        self._partial = path.with_name(path.name + ".partial")
        self._note = path.with_name(path.name + ".partial.json")
        self.unknown = 0

    @contextmanager
    def open(self) -> Iterator[int]:
        """Yields the number of lines already there. Raises EnvironmentFault if the file cannot be written."""
        try:
            lines = self._kept()
            if lines is None:
                self._partial.unlink(missing_ok=True)  # it is of another token
                write_durably(self._note, json.dumps({"token": self._token}).encode())
            with self._partial.open("r+" if lines is not None else "w", newline="") as self._file:
                if lines is None:
                    csv.writer(self._file).writerow(self._header)
                self._file.seek(0, os.SEEK_END)
                yield lines or 0
        except OSError as failed:
            raise EnvironmentFault(
                f"{self._path} cannot be written: {failed.strerror}", hint="choose another --out"
            ) from failed

    def add(self, rows: Sequence[Sequence[str]]) -> None:
        """Appends lines; they are on the disk when this returns. Raises OSError."""
        csv.writer(self._file).writerows(rows)
        self.unknown += _unknown(rows)
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Moves the finished file into place. Raises OSError."""
        self._partial.replace(self._path)
        self._note.unlink(missing_ok=True)

    def _kept(self) -> int | None:
        """The whole lines of an earlier start, the rest of a line cut off; None if there are none of use."""
        try:
            token = json.loads(self._note.read_text())["token"]
            content = self._partial.read_bytes()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        whole = content.rfind(b"\n") + 1
        if token != self._token or not whole:
            return None
        os.truncate(self._partial, whole)
        there = 0
        with self._partial.open(newline="") as lines:
            reader = csv.reader(lines)
            next(reader)
            for row in reader:
                there, self.unknown = there + 1, self.unknown + _unknown([row])
        return there

    _file: TextIO


def _unknown(rows: Iterable[Sequence[str]]) -> int:
    return sum(not any(row[1:]) for row in rows)


def batches(ids: Iterator[str], size: int) -> Iterator[list[str]]:
    """Lists of so many ids, the last one shorter."""
    while block := list(islice(ids, size)):
        yield block


def refuse_same(ids: Path, out: Path) -> None:
    """Raises InputError if the file of ids would be overwritten."""
    if ids.resolve() == out.resolve():
        raise InputError(f"--ids and --out are both {ids}", hint="choose another --out")
