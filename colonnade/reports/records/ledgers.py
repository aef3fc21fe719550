"""Releases of the parties, summed over their ledgers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.common.run.json_lines import read_lines
from colonnade.common.run.run_folder import RunFolder

_LONGEST = 255  # maximum bytes of a file name


@dataclass
class Book:
    """All messages of one kind that left.

    Attributes:
        bytes: of tensors as sent.
        rows: number of rows, counted in every message.
        repeats: messages that left again after a rollback.
        parties: owners of the ledgers.
        mechanisms: their protection; "" means nothing private.
    """

    messages: int = 0
    bytes: int = 0
    rows: int = 0
    repeats: int = 0
    parties: set[str] = field(default_factory=set)
    mechanisms: list[str] = field(default_factory=list)


def read_books(folder: Path, parties: Iterable[str]) -> dict[str, Book]:
    """Reads parties/NAME/ledger.jsonl by kind of message; empty without a ledger.

    Names in the roster that are not plain file names are skipped, so that none acts as a path.
    """
    books: dict[str, Book] = {}
    for party in parties:
        if not is_file_name(party):
            continue
        _read(RunFolder(folder).party(party).ledger, party, books)
    return books


def is_file_name(name: str) -> bool:
    """True if a name from a file is a plain folder name, not a path."""
    return Path(name).name == name and len(name.encode(errors="replace")) <= _LONGEST


def read_books_of(ledger: Path) -> dict[str, Book]:
    books: dict[str, Book] = {}
    _read(ledger, ledger.parent.name, books)
    return books


def _read(ledger: Path, party: str, books: dict[str, Book]) -> None:
    for entry in read_lines(ledger):
        if isinstance(kind := entry.get("kind"), str):  # otherwise the line reserves a budget
            _enter(books.setdefault(kind, Book()), party, entry)


def _enter(book: Book, party: str, entry: dict[str, object]) -> None:
    book.messages += 1
    book.bytes += _whole(entry.get("bytes"))
    book.rows += _whole(entry.get("rows"))
    book.repeats += bool(entry.get("repeat"))
    book.parties.add(party)
    mechanism = str(entry.get("mechanism", ""))
    if mechanism not in book.mechanisms:
        book.mechanisms.append(mechanism)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
