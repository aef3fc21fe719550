"""Releases of the parties, summed over their ledgers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.common.privacy.accounting.budget import reservations
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.words import counted

_DELTA = re.compile(r"\bdelta=(\S+)")
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


def spent(ledger: Path) -> tuple[str, str]:
    """Epsilon after the newest message of a party's ledger; and the releases paid for, and what they do not cover."""
    epsilon, delta = None, ""
    for entry in read_lines(ledger):
        if entry.get("epsilon") is not None:  # only releases of a model cost epsilon
            epsilon, found = entry["epsilon"], _DELTA.search(str(entry.get("mechanism")))
            delta = f"delta {found[1]}" if found else "the agreed delta"
    if not isinstance(epsilon, int | float):
        return "no privacy guarantee was counted", ""
    paid = counted(sum(releases for releases, _ in reservations(ledger)), "release")
    about = "it is this party's own; a person whose row lies at others too is in their releases as well"
    return f"epsilon {epsilon:.4g} at {delta} after the last message", f"{paid} paid for; {about}"


def _read(ledger: Path, party: str, books: dict[str, Book]) -> None:
    for entry in read_lines(ledger):
        if isinstance(kind := entry.get("kind"), str):  # otherwise the line reserves a budget
            _enter(books.setdefault(kind, Book()), party, entry)


def _enter(book: Book, party: str, entry: dict[str, object]) -> None:
    size, rows, mechanism = entry.get("bytes"), entry.get("rows"), str(entry.get("mechanism", ""))
    book.messages += 1
    book.bytes += size if isinstance(size, int) else 0
    book.rows += rows if isinstance(rows, int) else 0
    book.repeats += bool(entry.get("repeat"))
    book.parties.add(party)
    if mechanism not in book.mechanisms:
        book.mechanisms.append(mechanism)
