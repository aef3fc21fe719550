"""Bytes by party over a whole run, over all connections and links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from colonnade.common.conversation.conversation import Link
from colonnade.common.conversation.traffic import Traffic
from colonnade.common.wire.connection import Connection

_WAYS, _UNITS = ("up", "down"), ("payload", "wire")


class Totals:
    """Traffic in both directions by party, and number of late messages.

    Args:
        parties: the roster.
    """

    def __init__(self, parties: tuple[str, ...]) -> None:
        self.parties = parties
        self._earlier: Counter[str] = Counter()  # of a run that is resumed, by "party way unit"
        self._connections: dict[str, list[Connection]] = {party: [] for party in parties}
        self._links: dict[str, list[Link]] = {party: [] for party in parties}
        self.late: Counter[str] = Counter()

    def connect(self, party: str, connection: Connection) -> None:
        """Counts a party's bytes over this connection from now on."""
        self._connections[party].append(connection)

    def link(self, party: str, link: Link) -> None:
        """Counts a party's messages over this link from now on."""
        self._links[party].append(link)

    def capture(self) -> dict[str, int]:
        """All counts, as `restore` takes them."""
        flat = {
            f"{party} {way} {unit}": self._count(party, way, unit)
            for party in self.parties
            for way in _WAYS
            for unit in _UNITS
        }
        return {**flat, **{f"{party} late": count for party, count in self.late.items()}}

    def restore(self, counts: Mapping[str, int]) -> None:
        """Adds the counts of earlier starts."""
        for key, count in counts.items():
            party, _, what = key.partition(" ")
            if what == "late":
                self.late[party] += count
            else:
                self._earlier[key] += count

    def wire(self) -> tuple[int, int]:
        """Total bytes on the wire, up and down."""
        up, down = (sum(self._count(party, way, "wire") for party in self.parties) for way in _WAYS)
        return up, down

    def summary(self) -> dict[str, Any]:
        """By direction and party: `payload` counts tensors alone, `wire` whole gRPC messages."""
        parties = {
            party: {way: {unit: self._count(party, way, unit) for unit in _UNITS} for way in _WAYS}
            for party in self.parties
        }
        total = {way: {unit: sum(party[way][unit] for party in parties.values()) for unit in _UNITS} for way in _WAYS}
        return {**total, "parties": parties}

    def books(self) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
        """Counts of this start: party -> up or down -> kind -> messages, payload bytes. Thread-safe."""
        return {
            party: {way: _by_kind([_book(link.traffic, way) for link in list(links)]) for way in _WAYS}
            for party, links in self._links.items()
        }

    def frames(self) -> dict[tuple[str, str], int]:
        """Counts of this start: (up or down, party) -> bytes on the wire. Thread-safe."""
        return {(way, party): self._wire(party, way) for party in self.parties for way in _WAYS}

    def _count(self, party: str, way: str, unit: str) -> int:
        earlier = self._earlier[f"{party} {way} {unit}"]
        if unit == "wire":
            return earlier + self._wire(party, way)
        return earlier + sum(_payload(link.traffic, way) for link in self._links[party])

    def _wire(self, party: str, way: str) -> int:
        return sum(c.bytes_in if way == "up" else c.bytes_out for c in list(self._connections[party]))


def _book(traffic: Traffic, way: str) -> dict[str, list[int]]:
    return traffic.received if way == "up" else traffic.sent


def _payload(traffic: Traffic, way: str) -> int:
    return sum(size for _, size in _book(traffic, way).values())


def _by_kind(books: list[dict[str, list[int]]]) -> dict[str, tuple[int, int]]:
    total: dict[str, tuple[int, int]] = {}
    for kind, (messages, size) in (entry for book in books for entry in list(book.items())):
        before = total.get(kind, (0, 0))
        total[kind] = (before[0] + messages, before[1] + size)
    return total
