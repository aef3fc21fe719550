"""Compares what other parties state about the session with our own record."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from colonnade.client.transcript.statement import WindowStatement, is_in, rows
from colonnade.common.crypto.told import TranscriptError

_MOST = 20_000  # hashes of one party that wait for ours


@dataclass
class OwnRecord:
    """What we were told, as far as we have stated it.

    Attributes:
        entries: (name, round) -> salted hash.
        opened: rounds that the server has opened here, ascending.
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

    Args:
        names: theirs.
        begun: the round that the session continues after.
        next: number of their next statement; None before the first.
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
        """Takes some of the parties out: these have stated something else, or first."""
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
        """Compares the entries that both have.

        Args:
            in_step: True if no party misses a round: then both must have opened and saved the same rounds.

        Raises:
            TranscriptError: something differs; names the round.
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
                stated, had = _text(theirs), _text(rows(sorted(own)))
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


def _text(opened: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in opened) or "none"
