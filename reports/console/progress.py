"""The live line of a run, fed by its events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from colonnade.common.observability.telemetry import Event
from colonnade.common.runtime.numbers import plain

_PLAIN_PERIOD = 5.0  # seconds between two lines where the output is no terminal


class Progress:
    """Shows events as one line that changes, or as a line now and then where nothing can change.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._round: Event = {}
        self._validation = "-"
        self._next_plain = 0.0

    def __call__(self, event: Event) -> None:
        """Takes an event in."""
        match event["kind"]:
            case "listening":
                waiting = len(event["waiting_for"])
                self._say(f"server listens on {event['address']}, waiting for {waiting} parties")
            case "join" if "joined" in event:
                if event["joined"] == event["of"]:
                    self._say(f"all {event['of']} parties have joined")
            case "refused" | "failed" | "leave" | "warning" | "checkpoint_failed":
                self._say(f"{event['party']}: {event['reason']}", style="yellow")
            case "aligning":
                self._say(f"aligning rows: {event['done']} of {event['of']} blocks")
            case "aligned":
                kept = ", by a kept alignment" if event.get("reused") == event["common"] else ""
                self._say(f"{event['common']} rows are common to all, of the server's {event['rows']}{kept}")
            case "rejoin":
                self._say(f"{event['party']} is back after {event['seconds']:.1f} s, in round {event['round']}")
            case "stopped":
                self._say(f"stopped after round {event['round']}: {event['reason']}")
            case "resume" if event["round"]:
                self._say(f"everyone goes on after round {event['round']}")
            case "resume":
                self._say("everyone begins again: no checkpoint was taken yet")
            case "evaluation" if event["part"] == "validation":
                self._validation = score_words(event)
                self._update(event)
            case "round":
                self._round = event
                self._update(event)

    def close(self) -> None:
        """Leaves the last line standing."""
        if self._live is not None:
            self._live.update(self._line(), refresh=True)
            self._live.stop()
            self._live = None

    def _say(self, text: str, style: str = "dim") -> None:
        self._console.print(text, style=style, markup=False)

    def _update(self, event: Event) -> None:
        if not self._round:
            return
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(self._line(), console=self._console, refresh_per_second=8)
                self._live.start()
            self._live.update(self._line())
        elif time.monotonic() >= self._next_plain or event.get("round") == event.get("rounds"):
            self._next_plain = time.monotonic() + _PLAIN_PERIOD
            self._console.print(self._line())

    def _line(self) -> Text:
        now = self._round
        parts = [
            f"round {now['round']}/{now['rounds']}",
            f"epoch {now['epoch']:.1f}",
            "loss " + ("-" if now["loss"] is None else f"{now['loss']:.4f}"),
            f"validation {self._validation}",
            f"up {megabytes(now['bytes_up'])}",
            f"down {megabytes(now['bytes_down'])}",
        ]
        if slow := _slow(now["slowest"]):
            parts.append(slow)
        return Text("  ".join(parts))


class PartyProgress:
    """Prints a party's progress, a line for each event that matters to its operator.

    Args:
        console: where to.
        party: its name.
    """

    _LINES: Mapping[str, str] = {
        "join": "joined, and waits for the others",
        "aligning": "aligning rows: {done} of {of} blocks",
        "aligned": "{common} of its {rows} rows are common to all",
        "begin": "begins after round {round} of {rounds}",
        "checkpoint": "round {round} of {rounds} is on the disk",
        "server_away": "{reason}; dials again",
        "warning": "{reason}",
        "end": "done after round {round}",
    }

    def __init__(self, console: Console, party: str) -> None:
        self._console, self._party = console, party

    def __call__(self, event: Event) -> None:
        """Takes an event in."""
        if line := self._LINES.get(event["kind"]):
            self.say(line.format_map(event))

    def say(self, line: str) -> None:
        """Says something else."""
        self._console.print(f"{self._party}: {line}", style="dim", markup=False, soft_wrap=True)


def score_words(said: Mapping[str, Any], part: str = "val") -> str:
    """The one number that says most about a part's rows: '97.2%' are right, or 'RMSE 54.3'."""
    accuracy = said.get(f"{part}_accuracy")
    return f"RMSE {plain(said[f'{part}_rmse'])}" if accuracy is None else f"{accuracy:.2%}"


def megabytes(size: int) -> str:
    """1234567 -> '1.2 MB'."""
    return f"{size / 1e6:.1f} MB"


def _slow(slowest: dict[str, Any]) -> str:
    if not slowest["party"]:
        return ""
    return f"slowest {slowest['party']} +{slowest['seconds'] * 1e3:.0f} ms"
