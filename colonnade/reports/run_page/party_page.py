"""The page of a party's own folder, which is never part of the server's."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.common.data.columns.distribution import ColumnBins, DistributionFile
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.errors import ColonnadeError, InputError
from colonnade.common.privacy.accounting.ledger import refuse_unpinned
from colonnade.common.run.json_text import is_number, read_lines
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.common.text import plain
from colonnade.reports.html.charts import Axis, Bar, row_chart
from colonnade.reports.html.page import render, tile
from colonnade.reports.records.ledgers import Book, describe_kind, read_books_of, spent
from colonnade.reports.records.run import folders_beside, sections_of
from colonnade.reports.run_page.privacy import protected
from colonnade.reports.words import amount, counted, listed, percent

TEMPLATES = Path(__file__).parent / "templates"
_SHOWN, _DRAWN, _WORDS = 200, 24, 3  # columns of the table and of the chart, words of a column
_CHANCE = 1.95  # of a Kolmogorov-Smirnov distance, exceeded once in 1000 columns

Bounds = tuple[float, float]


def party_page(folder: Path) -> str:
    """A party's own view of a run: its columns, with changes since its previous run, and its messages."""
    own = PartyFolder(folder)
    own.refuse_unreadable()
    refuse_unpinned(own.ledger)
    name, agreed = _config(own)
    books, columns = read_books_of(own.ledger), _columns(own)
    if not books and not columns:
        raise InputError(f"{folder}: no message left by its ledger", hint="give the folder of a party that took part")
    before, had = _before(own, name, agreed.get("id"))
    earlier = {one.name: (one, words) for one, words in had}
    moves = {one.name: moved(*earlier[one.name], one, words) for one, words in columns if one.name in earlier}
    rows = [_row(one, earlier, moves.get(one.name)) for one, _ in sorted(columns, key=_by_need(moves))]
    far = [name for name in moves if moves[name] is not None]
    since = "" if before is None or not moves else str(_named(before))
    protocol, most = _protocol(agreed), sorted(books.items(), key=lambda entry: -entry[1].bytes)
    sent = [Bar(kind, book.bytes, amount(book.bytes), about=describe_kind(kind, protocol).partition(":")[0])
            for kind, book in most if book.bytes]  # fmt: skip
    values = {
        "title": f"{name}: its own report",
        "said": _said(name, own, books, far, len(moves), since),
        "cards": _cards(own, books, columns, far, since),
        "heads": ("column", "type", "missing", "values in training", *(("moved",) if since else ())),
        "rows": rows[:_SHOWN], "more": len(rows) - len(rows[:_SHOWN]), "since": since,
        "words": (0, 1, 3, 4), "moves": _drawn(moves),
        "sent": row_chart(sent, Axis("of tensors", amount), caption="Bytes that left, by kind of message")
                if sent else None,
        "kinds": [(kind, describe_kind(kind, protocol) or "-", listed([protected(way)[0] for way in book.mechanisms]),
                   book.messages, amount(book.bytes), book.rows, book.repeats) for kind, book in most],
        "facts": [("folder", folder.resolve()), ("federation", agreed.get("id", "not known")),
                  ("protocol", protocol or "not known"), ("ledger", own.ledger.name)],
    }  # fmt: skip
    return render("party.html", values, beside=TEMPLATES)


def moved(before: ColumnBins, had: Sequence[str], now: ColumnBins, has: Sequence[str]) -> float | None:
    """A lower bound on the share of rows whose values changed since an earlier run; None if it may be chance.

    Both runs stored counts by their own bins. The shares below a number, or of a word, are known at a run's own bins
    and bounded by neighbouring bins elsewhere: the result is the largest distance consistent with these bounds.

    Args:
        had, has: all words of both runs' training rows.
    """
    if before.counts is None or now.counts is None or (before.words is None) != (now.words is None):
        return None
    sizes = [int(one.counts[:-2].sum()) for one in (before, now) if one.counts is not None]
    if not all(sizes):
        return None
    if before.words is not None and now.words is not None:
        places: Sequence[Any] = [*before.words, *now.words]
        pairs = [(_of_word(before, had, word), _of_word(now, has, word)) for word in places]
    else:
        places = [*before.edges, *now.edges]
        pairs = [(_below(before, edge), _below(now, edge)) for edge in places]
    gap = max(max(one[0] - other[1], other[0] - one[1]) for one, other in pairs)
    return gap if gap > _CHANCE * math.sqrt(sum(1 / size for size in sizes)) else None


def _below(bins: ColumnBins, value: float) -> Bounds:
    assert bins.counts is not None
    shares = np.concatenate([[0.0], np.cumsum(bins.counts[:-2])]) / bins.counts[:-2].sum()
    after, at = (int(np.searchsorted(bins.edges, value, side=side)) for side in ("left", "right"))
    return float(shares[max(at - 1, 0)]), float(shares[min(after, len(shares) - 1)])


def _of_word(bins: ColumnBins, known: Sequence[str], word: str) -> Bounds:
    assert bins.counts is not None and bins.words is not None
    total = bins.counts[:-2].sum()
    if word in bins.words:
        exact = float(bins.counts[bins.words.index(word)] / total)
        return exact, exact
    return 0.0, float(bins.counts[-3] / total) if word in known else 0.0


def _columns(folder: PartyFolder) -> list[tuple[ColumnBins, Sequence[str]]]:
    """Distributions of the training rows with all words of each column; none of plain values, or before a run began."""
    if not folder.encoder.is_file():
        return []
    codes = EncoderFile(folder.path, begun=True).read().codes
    columns, unknown = DistributionFile(folder.path).read(codes)
    return [] if unknown else [(one, code.words or ()) for one, code in zip(columns, codes, strict=True)]


def _config(folder: PartyFolder) -> tuple[str, Mapping[str, Any]]:
    """The party's name, and the agreed section."""
    sections: Mapping[str, Any] = defaultdict(dict)
    with suppress(FileNotFoundError, ValueError):
        sections = sections_of(folder.config.read_text(encoding="utf-8"))
    parties = sections["parties"]
    return next(iter(parties)) if len(parties) == 1 else folder.path.resolve().name, sections["federation"]


def _protocol(agreed: Mapping[str, Any]) -> str:
    found = agreed.get("protocol")
    return str(found.get("name", "")) if isinstance(found, dict) else str(found or "")


def _before(
    own: PartyFolder, name: str, federation: object
) -> tuple[PartyFolder | None, list[tuple[ColumnBins, Sequence[str]]]]:
    """The party's newest earlier run of the same federation, and its columns.

    It is searched beside this folder, or in a run's folder beside its own. Other users' and unreadable folders are
    skipped.
    """
    here = own.path.resolve()
    in_run = here.parent.name == "parties"
    times, begun = dict[PartyFolder, float](), _begun(own)
    for folder in folders_beside(here.parent.parent if in_run else here):
        other = RunFolder(folder).party(name) if in_run else PartyFolder(folder)
        with suppress(OSError):
            if (found := _begun(other)) is not None and begun is not None and found < begun:
                times[other] = found
    for other in sorted(times, key=lambda each: -times[each]):
        with suppress(OSError, ColonnadeError):
            named, agreed = _config(other)
            if named == name and agreed.get("id") == federation and other.encoder.is_file():
                return other, _columns(other)
    return None, []


def _begun(folder: PartyFolder) -> float | None:
    """Time of the first message."""
    found = next(iter(read_lines(folder.ledger)), {}).get("time")
    return float(found) if is_number(found) else None


def _named(folder: PartyFolder) -> str:
    place = folder.path.parent.parent if folder.path.parent.name == "parties" else folder.path
    begun = _begun(folder)
    return f"{place.name!r} of {datetime.fromtimestamp(begun, UTC):%Y-%m-%d}" if begun is not None else repr(place.name)


def _said(name: str, own: PartyFolder, books: Mapping[str, Book], far: Sequence[str], of: int, since: str) -> str:
    size, count = (sum(getattr(book, what) for book in books.values()) for what in ("bytes", "messages"))
    words = f"{name} sent {amount(size)} in {counted(count, 'message')}; {spent(own.ledger)[0]}."
    if not since:
        return words
    many = f"{len(far)} of {counted(of, 'column')} have" if far else f"None of {counted(of, 'column')} has"
    return f"{words} {many} moved since its run {since}."


def _cards(
    own: PartyFolder,
    books: Mapping[str, Book],
    columns: Sequence[tuple[ColumnBins, Sequence[str]]],
    far: Sequence[str],
    since: str,
) -> list[dict[str, Any]]:
    clear = [kind for kind, book in books.items() if "none" in book.mechanisms]
    gaps = {one.name: share for one, _ in columns if (share := _missing(one))}
    words = sum(one.words is not None for one, _ in columns)
    most = max(gaps, key=gaps.__getitem__, default="")
    rows = max((int(one.counts.sum()) for one, _ in columns if one.counts is not None), default=0)
    tiles = [
        tile("Left the house", amount(sum(book.bytes for book in books.values())),
             f"in the clear: {listed(clear, 4)}" if clear else "nothing private in the clear",
             tone="warn" if clear else "good"),
        tile("Columns", str(len(columns)) if columns else "not typed",
             f"{len(columns) - words} of numbers, {words} of words, in {rows:,} training rows" if columns else "",
             f"most missing: {most}, {percent(gaps[most])}" if most else ""),
    ]  # fmt: skip
    if since:
        lines = (listed(far, 4) if far else "no column by more than chance", f"against the run {since}")
        tiles.append(tile("Moved", counted(len(far), "column"), *lines, tone="warn" if far else "good"))
    value, about = spent(own.ledger)
    return [*tiles, tile("Its privacy", value[:1].upper() + value[1:], about, tone="whole")]


def _missing(column: ColumnBins) -> float:
    return 0.0 if column.counts is None else float(column.counts[-1] / max(column.counts.sum(), 1))


def _by_need(moves: Mapping[str, float | None]) -> Any:
    return lambda entry: (-(moves.get(entry[0].name) or 0.0), -_missing(entry[0]))


def _row(column: ColumnBins, earlier: Mapping[str, Any], move: float | None) -> tuple[str, ...]:
    kind = "numbers" if column.words is None else "words"
    found = (column.name, kind, percent(round(_missing(column), 4)), _values(column))
    if not earlier:
        return found
    if column.name not in earlier:
        return (*found, "new")
    gap = _missing(column) - _missing(earlier[column.name][0])
    missing = f"{percent(round(_missing(earlier[column.name][0]), 4))} missing before" if abs(gap) >= 0.01 else ""
    of_rows = "" if move is None else f"at least {percent(round(move, 3))} of the rows"
    return (*found, "; ".join(filter(None, (of_rows, missing))) or "no")


def _values(column: ColumnBins) -> str:
    if column.counts is None:
        return "-"
    if column.words is None:
        return f"{plain(column.edges[0])} to {plain(column.edges[-1])}" if len(column.edges) else "none"
    total = max(column.counts[:-2].sum(), 1)
    most = [f"{word} {percent(round(column.counts[at] / total, 3))}"
            for at, word in enumerate(column.words[:_WORDS])]  # fmt: skip
    return ", ".join(most) + (" and others" if column.counts[:-2].sum() > column.counts[: len(most)].sum() else "")


def _drawn(moves: Mapping[str, float | None]) -> Any:
    far = sorted(((gap, name) for name, gap in moves.items() if gap is not None), reverse=True)[:_DRAWN]
    bars = [Bar(name, gap, f"at least {percent(round(gap, 3))}", colour=2) for gap, name in far]
    return row_chart(bars, Axis("of the rows", percent, (0.0, 1.0)), caption="Rows with other values than before") if (
        bars) else None  # fmt: skip
