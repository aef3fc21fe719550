"""The body of a party's statement: what it was told at the beginning of the session, and in a window of rounds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from colonnade.common.crypto.told import PARTS
from colonnade.common.run.json_text import parse_json

_LONGEST_NAME = 200  # characters
_LONGEST_BOX = 1024
_LARGEST = 1 << 32  # a number on the wire is smaller


@dataclass(frozen=True)
class WindowStatement:
    """One statement.

    Args:
        number: of the party's statements in the session, from 0.
        final: True at the end of the party's side.
        told: parts of the beginning of the session (common/crypto/told.py).
        last: rounds up to this one are covered, from the end of the statement before.
        opened: the covered rounds that the server has opened, as (first, last) of every gapless range.
        entries: name -> round -> salted hash, hex, of every item received since the statement before.
        receipts: of boxes (client/transcript/receipts.py).
        salt: sealed boxes by party, hex, with the secret that salts the hashes; sent once, by the first party.
    """

    number: int
    final: bool
    told: Mapping[str, Any]
    last: int
    opened: tuple[tuple[int, int], ...] = ()
    entries: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    receipts: Mapping[str, Any] = field(default_factory=dict)
    salt: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        content = {
            "number": self.number, "final": self.final, "told": dict(self.told), "last": self.last,
            "opened": [list(row) for row in self.opened],
            "entries": {name: dict(sorted(rounds.items())) for name, rounds in sorted(self.entries.items())},
            "receipts": dict(self.receipts), "salt": dict(self.salt),
        }  # fmt: skip
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes) -> WindowStatement:
        """Reads a body. Raises ValueError if it is malformed."""
        try:
            content = parse_json(body)
            return cls(
                number=_number(content["number"]),
                final=_flag(content["final"]),
                told=_told(content["told"]),
                last=_number(content["last"]),
                opened=tuple(_row(entry) for entry in _as(list, content["opened"])),
                entries=_entries(_as(dict, content["entries"])),
                receipts=_as(dict, content["receipts"]),
                salt={str(name): _text(box, _LONGEST_BOX) for name, box in _as(dict, content["salt"]).items()},
            )
        except (KeyError, TypeError, UnicodeDecodeError) as bad:
            raise ValueError(f"not a statement: {type(bad).__name__}") from None


def signed(party: str, body: bytes) -> bytes:
    return json.dumps(["colonnade statement", party, sha256(body).hexdigest()]).encode()


def rows(rounds: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ascending rounds as (first, last) of every gapless range."""
    found: list[tuple[int, int]] = []
    for round in rounds:
        if found and found[-1][1] == round - 1:
            found[-1] = (found[-1][0], round)
        else:
            found.append((round, round))
    return tuple(found)


def is_in(round: int, among: Iterable[tuple[int, int]]) -> bool:
    return any(first <= round <= last for first, last in among)


def _entries(content: Mapping[str, Any]) -> dict[str, dict[int, str]]:
    return {
        _text(name, _LONGEST_NAME): {_number(int(round)): _text(found, 64) for round, found in _as(dict, by).items()}
        for name, by in content.items()
    }


def _told(content: Any) -> dict[str, Any]:
    told: dict[str, Any] = _as(dict, content)
    if not set(told) <= set(PARTS) or not all(type(value) in (str, int) for value in told.values()):
        raise ValueError("not what a party was told")
    return told


def _row(entry: Any) -> tuple[int, int]:
    first, last = _as(list, entry)
    if _number(first) > _number(last):
        raise ValueError("a row ends before it begins")
    return first, last


def _as(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}")
    return value


def _number(value: Any) -> int:
    if not 0 <= _as(int, value) < _LARGEST:
        raise ValueError("a number is too large")
    return int(value)


def _flag(value: Any) -> bool:
    return bool(_as(bool, value))


def _text(value: Any, longest: int) -> str:
    if len(_as(str, value)) > longest:
        raise ValueError("a text is too long")
    return str(value)
