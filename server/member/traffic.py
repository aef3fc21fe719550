"""Bytes by party over a whole run, across connections and links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from colonnade.common.conversation.conversation import Link
from colonnade.common.conversation.stream import Stream, Traffic, WireBytes

_WAYS, _UNITS = ("up", "down"), ("payload", "wire")


class Totals:
    """Traffic in both directions by party, and number of late messages."""

    def __init__(self, parties: tuple[str, ...]) -> None:
        self.parties = parties
        self._earlier: Counter[str] = Counter()  # before the run was resumed, by "party way unit"
        # Counts only, so that closed connections and links are freed with their buffers.
        self._wires = {party: WireBytes() for party in parties}
        self._traffic = {party: Traffic() for party in parties}
        self.late: Counter[str] = Counter()

    def connect(self, party: str, connection: Stream) -> None:
        connection.count_in(self._wires[party])

    def link(self, party: str, link: Link) -> None:
        link.traffic = self._traffic[party]

    def capture(self) -> dict[str, int]:
        flat = {
            f"{party} {way} {unit}": self._count(party, way, unit)
            for party in self.parties
            for way in _WAYS
            for unit in _UNITS
        }
        return {**flat, **{f"{party} late": count for party, count in self.late.items()}}

    def restore(self, counts: Mapping[str, int]) -> None:
        """Adds counts from before a restart."""
        for key, count in counts.items():
            party, _, what = key.partition(" ")
            if what == "late":
                self.late[party] += count
            else:
                self._earlier[key] += count

    def wire(self) -> tuple[int, int]:
        """Total bytes on the wire, up and down."""
        return self._both("wire")

    def payload(self) -> tuple[int, int]:
        """Total bytes of tensors, up and down."""
        return self._both("payload")

    def summary(self) -> dict[str, Any]:
        """By direction and party: `payload` counts tensors only, `wire` whole gRPC messages."""
        parties = {
            party: {way: {unit: self._count(party, way, unit) for unit in _UNITS} for way in _WAYS}
            for party in self.parties
        }
        total = {way: {unit: sum(party[way][unit] for party in parties.values()) for unit in _UNITS} for way in _WAYS}
        return {**total, "parties": parties}

    def books(self) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
        """Counts since this start: party -> up or down -> kind -> messages, payload bytes. Thread-safe."""
        return {
            party: {way: _by_kind(_book(traffic, way)) for way in _WAYS} for party, traffic in self._traffic.items()
        }

    def frames(self) -> dict[tuple[str, str], int]:
        """Counts since this start: (up or down, party) -> bytes on the wire. Thread-safe."""
        return {(way, party): self._wire(party, way) for party in self.parties for way in _WAYS}

    def _both(self, unit: str) -> tuple[int, int]:
        up, down = (sum(self._count(party, way, unit) for party in self.parties) for way in _WAYS)
        return up, down

    def _count(self, party: str, way: str, unit: str) -> int:
        earlier = self._earlier[f"{party} {way} {unit}"]
        if unit == "wire":
            return earlier + self._wire(party, way)
        return earlier + sum(size for _, size in _book(self._traffic[party], way).values())

    def _wire(self, party: str, way: str) -> int:
        return self._wires[party].received if way == "up" else self._wires[party].sent


def _book(traffic: Traffic, way: str) -> dict[str, list[int]]:
    return traffic.received if way == "up" else traffic.sent


def _by_kind(book: dict[str, list[int]]) -> dict[str, tuple[int, int]]:
    return {kind: (messages, size) for kind, (messages, size) in list(book.items())}
