"""The body of a party's statement: what it was told at the beginning of the session, and in a window of rounds.

Other parties' statements are compared with its own record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from colonnade.common.crypto.sealing import PARTS, TranscriptError
from colonnade.common.run.json_text import parse_json

_LONGEST_NAME = 200  # characters
_LONGEST_BOX = 1024
_LARGEST = 1 << 32  # a number on the wire is smaller


@dataclass(frozen=True)
class WindowStatement:
    """One statement.

    Args:
        number: the statement's, from 0 in each session.
        final: True at the end of the party's side.
        told: parts of the beginning of the session (common/crypto/sealing.py).
        last: the last round covered, from the previous statement's on.
        opened: the covered rounds that the server has opened, as (first, last) of every gapless range.
        entries: name -> round -> salted hash, hex, of every item since the previous statement.
        receipts: as in client/transcript/receipts.py.
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
                final=_as(bool, content["final"]),
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


def _text(value: Any, longest: int) -> str:
    if len(_as(str, value)) > longest:
        raise ValueError("a text is too long")
    return str(value)


_MOST = 20_000  # hashes of one party that wait for ours


@dataclass
class OwnRecord:
    """What we were told and have stated: `entries`, the salted hashes by (name, round), and the rounds that the server
    has `opened` here, ascending.
    """

    entries: dict[tuple[str, int], str] = field(default_factory=dict)
    opened: list[int] = field(default_factory=list)
    last: int = 0

    def forget(self, before: int) -> None:
        self.entries = {key: found for key, found in self.entries.items() if key[1] >= before}
        self.opened = [round for round in self.opened if round >= before]


@dataclass
class OtherParties:
    """Parties whose statements so far are the same, so that they are compared once.

    The session continues after the round `begun`; `next` is the number of their next statement, None before the first.
    """

    names: list[str] = field(compare=False)
    begun: int
    next: int | None = None
    session: int = 0
    last: int = 0
    final: bool = False
    _waiting: dict[tuple[str, int], str] = field(default_factory=dict)
    _saves: set[int] = field(default_factory=set)
    _rows: list[tuple[int, int, tuple[tuple[int, int], ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.last = self.begun

    @property
    def name(self) -> str:
        return self.names[0]

    def part(self, names: Collection[str]) -> OtherParties:
        """Splits off parties whose next statement differs or came first."""
        self.names = [name for name in self.names if name not in names]
        parted = deepcopy(self)
        parted.names = list(names)
        return parted

    def take(self, statement: WindowStatement) -> None:
        for name, rounds in statement.entries.items():
            for round, found in rounds.items():
                if name == "Save":
                    self._saves.add(round)
                if len(self._waiting) < _MOST:
                    self._waiting[name, round] = found
        if statement.last > self.last:
            self._rows.append((self.last + 1, statement.last, statement.opened))
            self.last = statement.last
        self.final = statement.final

    def begin_again(self, session: int, round: int) -> None:
        self.session, self.next, self.final, self.last = session, None, False, round
        self._rows.clear()
        self._saves.clear()

    def compare(self, ours: OwnRecord, *, in_step: bool) -> None:
        """Compares common entries. Raises TranscriptError, which names the round, if something differs.

        If `in_step`, no party misses a round: then both must have opened and saved the same rounds.
        """
        both = [key for key in self._waiting if key in ours.entries]
        for name, round in sorted(both, key=lambda key: key[1]):
            theirs, own = self._waiting.pop((name, round)), ours.entries[name, round]
            if theirs != own:
                raise self._differs(name, round, theirs, own)
        while in_step and self._rows and self._rows[0][1] <= ours.last:
            first, last, opened = self._rows.pop(0)
            self._compare_rows(first, last, opened, ours)

    def forget(self, before: int) -> None:
        self._waiting = {key: found for key, found in self._waiting.items() if key[1] >= before}
        self._rows = [row for row in self._rows if row[1] >= before]

    def _compare_rows(self, first: int, last: int, opened: Iterable[tuple[int, int]], ours: OwnRecord) -> None:
        theirs, own = tuple(opened), {round for round in ours.opened if first <= round <= last}
        for round in range(first, last + 1):
            if is_in(round, theirs) != (round in own):
                said, here = ("", "not ") if is_in(round, theirs) else ("not ", "")
                text = f"round {round} was {said}opened at {self.name}, and {here}at us"
                stated, had = _said(theirs), _said(rows(sorted(own)))
                raise TranscriptError(
                    f"{text}: it states {stated}, we have {had}", other=self.name, part="Open", round=round,
                    ours=had, theirs=stated,
                )  # fmt: skip
        saved = {round for name, round in ours.entries if name == "Save" and first <= round <= last}
        for round in sorted(saved ^ {round for round in self._saves if first <= round <= last}):
            had, stated = ("a checkpoint", "none") if round in saved else ("none", "a checkpoint")
            raise TranscriptError(
                f"round {round}: of {self.name} the server has asked {stated}, of us {had}",
                other=self.name, part="Save", round=round, ours=had, theirs=stated,
            )  # fmt: skip
        self._saves = {round for round in self._saves if round > last}

    def _differs(self, name: str, round: int, theirs: str, ours: str) -> TranscriptError:
        text = f"round {round}: {self.name} was told another {name} than we were: hash {theirs}, ours {ours}"
        return TranscriptError(text, other=self.name, part=name, round=round, ours=ours, theirs=theirs)


def _said(opened: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in opened) or "none"
