"""CSV files of ids and of predictions; neither has to fit into memory."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from colonnade.common.config.alignment import joined, taken_apart
from colonnade.common.config.data.tables import Key, columns_of
from colonnade.common.data.formats.csv_file import CsvFile
from colonnade.common.data.known_sets.catalogue import refuse_unusable
from colonnade.common.errors import DataError, InputError, disk_faults, nearest
from colonnade.common.run.files import open_own, shorten_own, write_durably

if TYPE_CHECKING:
    from colonnade.server.prediction.model import Predicted

_COLUMN = "id"  # as in files of predictions
_CTRL_Z = "\x1a"  # the end of files of DOS
_QUOTED = frozenset(',"\r\n')
_ENDS = frozenset("\r\n")


@dataclass(frozen=True)
class PredictionIds:
    """A CSV file with a column of ids.

    Args:
        key: the column's name; "" takes those called `like`, or if there is only one, `id`.
        like: the server's name for its column of ids, or the names of those that make a key.
    """

    path: Path
    key: str = ""
    like: Key = None

    def ids(self) -> Iterator[str]:
        """The ids in the order of the file. Raises DataError if it lacks the column or has a broken line."""
        return chain.from_iterable(self._blocks())

    def count(self) -> int:
        return sum(map(len, self._blocks()))

    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with the file. Raises DataError."""
        self._refuse_unusable()
        with self.path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:16]

    def _blocks(self) -> Iterator[list[str]]:
        self._refuse_unusable()
        table = CsvFile.headed(self.path, names=columns_of(self.key or self.like) or (_COLUMN,))
        names, rows = self._names(table.header), 0
        for batch in table.batches(names):
            parts = [column.to_pylist() for column in batch.columns]
            for cells in parts:
                if not all(map(str.strip, cells)) or not _ENDS.isdisjoint("".join(cells)):
                    row = next(row for row, cell in enumerate(cells) if not cell.strip() or _ENDS & set(cell))
                    where, part = table.place(rows + row), "" if len(parts) == 1 else "a part of "
                    if cells[row].strip():
                        hint = "remove the stray quotation marks there"
                        raise DataError(f"{where}: an id of several lines", hint=hint)
                    raise DataError(f"{where}: {part}the id is missing", hint="fill it in, or leave it out")
            ids = parts[0] if len(parts) == 1 else list(map(joined, zip(*parts, strict=True)))
            if len(parts) == 1 < (wanted := len(columns_of(self.like))):
                self._refuse_other_keys(ids, wanted)
            rows += len(ids)
            yield ids if len(table.header) > 1 else [id for id in ids if id != _CTRL_Z]

    def _refuse_other_keys(self, ids: Sequence[str], parts: int) -> None:
        """Raises DataError if a text is not that of a key of several parts."""
        for id in ids:
            if len(taken_apart(id)) != parts:
                raise DataError(
                    f"{self.path}: {id!r} is no key of {parts} parts",
                    hint=f"give the columns {', '.join(columns_of(self.like))}, or one column of JSON lists, as "
                    + joined([f"part {part + 1}" for part in range(parts)]),
                )

    def _names(self, header: Sequence[str]) -> Sequence[str]:
        """The columns of the ids."""
        wanted = columns_of(self.key or self.like)
        lacking = [name for name in wanted if name not in header]
        if wanted and not lacking:
            return wanted
        if self.key or 0 < len(lacking) < len(wanted):
            hint = "see --key" if self.key else f"a key is made of the columns {', '.join(wanted)}"
            raise DataError(f"{self.path} has no column {lacking[0]!r}{nearest(lacking[0], header)}", hint=hint)
        if len(header) > 1:
            raise DataError(
                f"{self.path} has the columns {', '.join(header[:6])}", hint="say which of them holds ids: --key NAME"
            )
        if header[0].strip() == _COLUMN:
            return header
        # It may be an unknown name, or the first id of a file without a header: never drop a row silently.
        name = ",".join(wanted) or _COLUMN
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

    A partial file of an earlier start is continued: no id is predicted twice.

    Args:
        token: identifies the inputs; a partial file with another token is overwritten.

    Attributes:
        unknown: number of lines without a prediction, including those of an earlier start.
    """

    def __init__(self, path: Path, header: Sequence[str], token: str) -> None:
        self._path, self._header, self._token = path, header, token
        self._partial = path.with_name(path.name + ".partial")
        self._note = path.with_name(path.name + ".partial.json")
        self.unknown = 0

    @contextmanager
    def open(self) -> Iterator[int]:
        """Yields the number of lines already there. Raises EnvironmentFault if the file cannot be written."""
        with disk_faults(f"{self._path} cannot be written", "choose another --out"):
            lines = self._kept()
            if lines is None:
                self._partial.unlink(missing_ok=True)  # its token differs
                write_durably(self._note, json.dumps({"token": self._token}).encode())
            flags = os.O_RDWR | (0 if lines is not None else os.O_CREAT | os.O_TRUNC)
            with os.fdopen(open_own(self._partial, flags, 0o666), "r+", newline="", encoding="utf-8") as self._file:
                if lines is None:
                    csv.writer(self._file).writerow(self._header)
                self._file.seek(0, os.SEEK_END)
                yield lines or 0

    def add(self, lines: str, unknown: int = 0) -> None:
        """Appends lines; they are durable when this returns. Raises OSError."""
        self._file.write(lines)
        self.unknown += unknown
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self) -> None:
        self._partial.replace(self._path)
        self._note.unlink(missing_ok=True)

    def _kept(self) -> int | None:
        """The number of complete lines of an earlier start, with a partial line cut off; None if none can be used."""
        try:
            token = json.loads(self._note.read_text(encoding="utf-8"))["token"]
            content = self._partial.read_bytes()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        whole = content.rfind(b"\n") + 1
        if token != self._token or not whole:
            return None
        shorten_own(self._partial, whole)
        there = 0
        with self._partial.open(newline="", encoding="utf-8") as lines:
            reader = csv.reader(lines)
            next(reader)
            for row in reader:
                there, self.unknown = there + 1, self.unknown + (not any(row[1:]))
        return there

    _file: TextIO


class LineFormat:
    """Lines of a file of predictions: with the class and probabilities if `classes`, else with numbers for targets."""

    def __init__(self, names: Sequence[str], classes: bool) -> None:
        self._labels = [_cell(name) for name in names] if classes else None
        numbers = [f"%.{6 if classes else 9}g"] * len(names)
        self._known = f"%s,{'%s,' if classes else ''}{','.join(numbers)}\r\n"
        self._unknown = f"%s{',' * (classes + len(names))}\r\n"

    def lines(self, ids: Sequence[str], said: Predicted) -> str:
        cells = list(map(_cell, ids)) if set("".join(ids)) & _QUOTED else ids
        found = compress(cells, said.known)
        numbers = said.values.T.tolist()
        if self._labels is None:
            known = map(self._known.__mod__, zip(found, *numbers, strict=True))
        else:
            best = map(self._labels.__getitem__, said.chosen.tolist())
            known = map(self._known.__mod__, zip(found, best, *numbers, strict=True))
        if said.known.all():
            return "".join(known)
        both = zip(cells, said.known.tolist(), strict=True)
        return "".join([next(known) if there else self._unknown % cell for cell, there in both])


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED & set(text) else text


def batches(ids: Iterator[str], size: int) -> Iterator[list[str]]:
    while block := list(islice(ids, size)):
        yield block


def refuse_same(ids: Path, out: Path) -> None:
    if ids.resolve() == out.resolve():
        raise InputError(f"--ids and --out are both {ids}", hint="choose another --out")
