"""The live progress line of a run, driven by its events."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from colonnade.common.escaped import escaped_lines
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.numbers import plain
from colonnade.reports.words import counted

JUDGED: Mapping[str, str] = {
    "auc": "AUC", "balanced_accuracy": "balanced accuracy", "average_precision": "average precision", "f1": "F1",
    "ks": "KS", "lift": "lift", "log_loss": "log loss", "brier": "Brier score",
}  # fmt: skip
"""Metrics that evaluations of a run have where classes are unequal or `federation.stop` names them, in words."""

_PLAIN_PERIOD = 5.0  # seconds between two lines where the output is no terminal

_LINES: Mapping[str, str] = {
    "aligning": "aligning rows: {done} of {of} blocks",
    "aligned": "{common} rows are common to all, of the server's {rows}",
    "rejoin": "{party} is back after {seconds:.1f} s, in round {round}",
    "stopped": "stopped after round {round}: {reason}",
}


def _reused(event: Event) -> str:
    """A remark on an alignment that was reused."""
    return ", by a kept alignment" if event["kind"] == "aligned" and event.get("reused") == event["common"] else ""


class Progress:
    """Shows events as one changing line, or as an occasional line if the output is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._round: Event = {}
        self._validation = "-"
        self._next_plain = 0.0
        self._diverged = self._failed = False

    def __call__(self, event: Event) -> None:
        match self._kind(event):
            case "listening":
                waiting = counted(len(event["waiting_for"]), "party")
                self._say(f"server listens on {event['address']}, waiting for {waiting}")
            case "join" if "joined" in event:
                if event["joined"] == event["of"]:
                    self._say(f"all {counted(event['of'], 'party')} joined")
            case "refused" | "failed" | "leave" | "warning" | "checkpoint_failed":
                reason = str(event["reason"]).removeprefix(f"{event['party']} ")  # the line begins with its name
                self._say(f"{event['party']}: {reason}", style="yellow")
            case "privacy":
                self._say(event["said"], style="yellow" if event["weak"] else "dim")
            case "aligning" | "aligned" | "rejoin" | "stopped" as kind:
                self._say(_LINES[kind].format_map(event) + _reused(event))
            case "resume" if event["round"]:
                self._say(f"everyone goes on after round {event['round']}")
            case "back_off":
                self._say(back_off_line(event), style="yellow")
            case "resume":
                again = "everyone begins again: no checkpoint was taken yet"
                self._say(f"everyone goes on after round {event['round']}" if event["round"] else again)
            case "evaluation" if event["part"] == "validation":
                self._validation = score_words(event)
                self._update(event)
            case "round":
                self._round = event
                self._update(event)

    def _kind(self, event: Event) -> str:
        """Returns the event's kind; "" for a member's leave that follows an already reported divergence or error."""
        kind = str(event["kind"])
        if kind in ("diverged", "back_off"):
            self._diverged = kind == "diverged"
        if kind in ("failed", "begin", "rejoin", "round"):
            self._failed = kind == "failed"
        return "" if (self._diverged or self._failed) and kind == "leave" else kind

    def close(self) -> None:
        """Leaves the last line on the screen."""
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
            *([f"epoch {now['epoch']:.1f}"] if "epoch" in now else []),
            "loss " + ("-" if now.get("loss") is None else f"{now['loss']:.4f}"),
            f"validation {self._validation}",
            f"up {megabytes(now['bytes_up'])}",
            f"down {megabytes(now['bytes_down'])}",
        ]
        if slow := _slow(now["slowest"]):
            parts.append(slow)
        return Text(escaped_lines("  ".join(parts)))


class PartyProgress:
    """Prints a party's progress, one line for each event that matters to its operator."""

    _LINES: Mapping[str, str] = {
        "join": "joined, and waits for the others",
        "aligning": "aligning rows: {done} of {of} blocks",
        "aligned": "{common} of its {rows} rows are common to all",
        "privacy": "{said}",
        "batch": "{said}",
        "reloaded": "{said}",
        "begin": "begins after round {round} of {rounds}",
        "checkpoint": "round {round} of {rounds} is on the disk",
        "server_away": "{reason}; dials again",
        "warning": "{reason}",
        "end": "done after round {round}",
    }

    def __init__(self, console: Console, party: str) -> None:
        self._console, self._party = console, party

    def __call__(self, event: Event) -> None:
        if line := self._LINES.get(event["kind"]):
            self.say(line.format_map(event))

    def say(self, line: str) -> None:
        self._console.print(f"{self._party}: {line}", style="dim", markup=False, soft_wrap=True)


def score_words(said: Mapping[str, Any], part: str = "val", names: Mapping[str, str] = JUDGED) -> str:
    """Formats the main numbers of a part: '97.20%' are right, 'RMSE 54.3', or 'AUC 0.91, accuracy 85.07%'.

    Args:
        part: prefix of the metrics' names.
        names: words for the metrics to be printed first, if present.
    """
    found = [(words, said[f"{part}_{name}"]) for name, words in names.items() if said.get(f"{part}_{name}") is not None]
    more = [f"{words} {share(value) if 'accuracy' in words else plain(value)}" for words, value in found]
    accuracy = said.get(f"{part}_accuracy")
    if accuracy is None:
        return ", ".join([*more, f"RMSE {plain(said[f'{part}_rmse'])}"])
    return ", ".join([*more, f"accuracy {share(accuracy)}"]) if more else share(accuracy)


def share(value: float) -> str:
    """0.972 -> '97.20%'."""
    return f"{value:.2%}"


def back_off_line(event: Mapping[str, Any]) -> str:
    at = f"the checkpoint of round {event['round']}" if event["round"] else "the beginning"
    whence = f"everyone goes back to {at}, with {event['factor']:.3g} of the configured learning rates"
    return f"{event['party']}: {event['reason']}: {whence}"


def megabytes(size: int) -> str:
    """1234567 -> '1.2 MB'."""
    return f"{size / 1e6:.1f} MB"


def _slow(slowest: dict[str, Any]) -> str:
    if not slowest["party"]:
        return ""
    return f"slowest {slowest['party']} +{slowest['seconds'] * 1e3:.0f} ms"
