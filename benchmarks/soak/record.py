"""Follows the server's events: rounds, sessions, and whether rounds only go back to common checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Tail:
    """Reads what was appended to a JSON lines file since the last read."""

    path: Path
    lines: int = 0
    _read: int = 0

    def new(self) -> list[dict[str, Any]]:
        """New complete lines; torn ones are skipped."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        found = []
        for line in whole.splitlines():
            self.lines += 1
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                found.append(entry)
        return found


@dataclass
class Rounds:
    """Rounds by the server's events.

    Args:
        newest: time of the newest event of a round that reached `highest`.
        broken: faults: a round that does not follow its predecessor, or a result that differs from the round's first.
        results: of every round and evaluation, by kind, part and round.
    """

    done: int = 0
    highest: int = 0
    newest: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    results: dict[tuple[str, str, int], str] = field(default_factory=dict)
    compared: int = 0
    _next: int | None = None
    _committed: int = 0

    def take(self, event: dict[str, Any]) -> None:
        kind = str(event["kind"])
        self.kinds[kind] += 1
        if kind == "begin":
            self._begin(int(event.get("round", 0)))
        elif kind == "rejoin":
            self._begin(int(event["round"]))
        elif kind == "round":
            self._round(event)
        if kind in ("round", "evaluation"):
            self._result(event)

    def _begin(self, round: int) -> None:
        if round > self.highest:
            self.broken.append(f"begins after round {round}, and round {self.highest} was the highest")
        self._next = round + 1

    def _round(self, event: dict[str, Any]) -> None:
        number = int(event["round"])
        if self._next is not None and number != self._next:
            self.broken.append(f"round {number} where round {self._next} was due")
        self._next = number + 1
        self.done += 1
        if number > self.highest:
            self.highest, self.newest = number, float(event["time"])

    def _result(self, event: dict[str, Any]) -> None:
        key = (event["kind"], str(event.get("part", "")), int(event["round"]))
        value = outcome(event)
        first = self.results.setdefault(key, value)
        if first != value:
            self.broken.append(f"{key} gave {value} and before {first}")


def outcome(event: dict[str, Any]) -> str:
    """Numbers of a round or an evaluation that must be equal whenever it is repeated."""
    names = sorted(name for name in event if name == "loss" or "accuracy" in name or name.endswith("loss"))
    return json.dumps({name: event[name] for name in names})
