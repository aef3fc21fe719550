"""`colonnade ledger`: shows what left a party by its own record, and verifies that record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.client.privacy.answers import KINDS, reserved
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.ledger import Verdict, newest, refuse_unpinned, verify
from colonnade.common.run.activity import activity
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_folder import PartyFolder
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import out as console
from colonnade.reports.records.ledgers import Book, describe_kind, read_books_of, spent
from colonnade.reports.words import amount, counted

_NAMED = 10  # most line numbers printed


def ledger(
    folder: Annotated[Path, typer.Argument(help="a party's own folder, RUN/parties/NAME", show_default=False)],
    check: Annotated[bool, typer.Option("--verify", help="verify its chain of hashes")] = False,
    head: Annotated[bool, typer.Option("--head", help="print the newest hash alone, to note elsewhere")] = False,
) -> None:
    """Prints what left by kind of message, the verdict on the chain of hashes, or the newest hash.

    Refuses a ledger that is shorter than the pin beside it says.
    """
    path = folder
    if folder.is_dir():
        party = PartyFolder(folder)
        party.refuse_unreadable()
        path = party.ledger
    if not path.is_file():
        raise InputError(
            f"{path}: there is no ledger", hint="give a party's own folder, as RUN/parties/NAME, or its ledger.jsonl"
        )
    if path.stat().st_size and next(iter(read_lines(path)), None) is None:
        raise InputError(f"{path} is no ledger", hint="give a party's own folder, as RUN/parties/NAME")
    if check:
        with activity("verifying the hashes"):
            found = verify(path)
        _say(path, found)
    else:
        refuse_unpinned(path)
    if head:
        console.say(newest(path))
    if not (check or head):
        _show(path)


def _say(path: Path, found: Verdict) -> None:
    if found.broken is not None:
        raise InputError(
            f"{path}, line {found.broken}: its hash does not fit what stands before it; {counted(found.lines, 'line')} "
            "before it fit",
            hint="the file was altered there, or a line before it was taken out; compare with a copy",
        )
    refuse_unpinned(path)
    console.say(f"{counted(found.lines, 'line')}, and every hash fits")
    if found.torn:
        where = ", ".join(map(str, found.torn[:_NAMED])) + (" .." if len(found.torn) > _NAMED else "")
        cut = f"{counted(len(found.torn), 'line')} cut short, as by a crash, and passed over: number {where}"
        console.say(cut, "yellow")
    console.say(f"newest hash: {found.head}")


def _show(path: Path) -> None:
    table = Grid("kind", "messages", "tensors", "rows", "sent again", "protection", title=f"what left, by {path}")
    with activity("reading the ledger"):
        books = read_books_of(path)
    for kind, book in books.items():
        table.add_row(kind, str(book.messages), amount(book.bytes), str(book.rows), str(book.repeats), _ways(book))
    console.show(table)
    for kind in books:  # below the table, whose cells are too narrow
        if what := describe_kind(kind):
            console.say(f"{kind}: {what}")
    if answered := [f"{count} {kind}" for kind in KINDS if (count := reserved(path, kind))]:
        console.say(f"answered in all starts: {', '.join(answered)} of the server's")
    value, about = spent(path)
    console.say(f"{value}; {about}" if about else value)
    console.say(f"newest hash: {newest(path)}")


def _ways(book: Book) -> str:
    """Protection of the messages; "none" means a release in the clear."""
    return ", ".join({"": "nothing private", "none": "in the clear"}.get(how, how) for how in book.mechanisms)
