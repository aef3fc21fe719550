"""Traffic: by party and direction, and by kind of message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.reports.html.frame import section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.records.kinds import describe_kind
from colonnade.reports.records.ledgers import Book
from colonnade.reports.records.run import RecordedRun
from colonnade.reports.words import amount, listed

_WAYS = {"up": "parties to server", "down": "server to parties"}
_PROTECTED = {"": "not private", "none": "nothing"}
_UNITS = {"payload": "of tensors", "wire": "on the wire"}


def traffic(run: RecordedRun) -> Html:
    """Bytes by party and direction, and by kind of message from the ledgers; nothing if none were counted."""
    counted = run.summary.get("bytes") or {}
    parts = [tag("p", sentence) for way in _WAYS if (sentence := _total(way, counted.get(way) or {}))]
    if by_party := counted.get("parties"):
        parts.append(_by_party(by_party))
    if run.books:
        parts.append(_by_kind(run.books, str(run.summary.get("protocol"))))
    elif parts and not run.virtual:
        parts.append(tag("p", "Kinds of messages stand in the parties' ledgers, which are not here.", class_="faint"))
    return section("Traffic", *parts)


def _total(way: str, counted: Mapping[str, int]) -> str:
    said = [f"{amount(counted[unit])} {words}" for unit, words in _UNITS.items() if unit in counted]
    return f"From {_WAYS[way]}: {', '.join(said)}." if said else ""


def _by_party(parties: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Html:
    most = max((counted["wire"] for ways in parties.values() for counted in ways.values()), default=0)
    rows = [
        (name, joined([_bar(ways[way]["wire"], most) for way in _WAYS]), *(
            amount(ways[way][unit]) for way in _WAYS for unit in ("wire", "payload")))
        for name, ways in parties.items()
    ]  # fmt: skip
    heads = ("party", "on the wire, up and down", "up, wire", "up, tensors", "down, wire", "down, tensors")
    return table(heads, rows, words=(0, 1), caption="By party: up is to the server, down from it")


def _bar(size: int, most: int) -> Html:
    width = 100 * size / most if most else 0.0
    shape = f'<rect class="here" width="{width:.1f}" height="10"/>'
    return Html(f'<svg class="strip" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{shape}</svg>')


def _by_kind(books: Mapping[str, Book], protocol: str) -> Html:
    rows: list[tuple[Any, ...]] = []
    for kind, book in sorted(books.items(), key=lambda entry: -entry[1].bytes):
        protected = listed([_PROTECTED.get(mechanism, mechanism) for mechanism in book.mechanisms])
        counts = (len(book.parties), book.messages, amount(book.bytes), book.rows, book.repeats)
        rows.append((kind, describe_kind(kind, protocol) or "-", protected, *counts))
    heads = ("kind", "what it is", "protected by", "parties", "messages", "tensors", "rows", "sent again")
    return table(
        heads, rows, words=(0, 1, 2), caption="Releases of the parties, from their ledgers, by kind of message"
    )
