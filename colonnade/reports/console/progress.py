"""Progress of a run, from the events of a member."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from colonnade.common.observability.telemetry import Event
from colonnade.common.run.activity import Activity
from colonnade.common.text import plain
from colonnade.reports.console.live import cut, plain_line
from colonnade.reports.console.screen import Screen
from colonnade.reports.words import counted

JUDGED: Mapping[str, str] = {
    "auc": "AUC", "balanced_accuracy": "balanced accuracy", "average_precision": "average precision", "f1": "F1",
    "ks": "KS", "lift": "lift", "log_loss": "log loss", "brier": "Brier score",
}  # fmt: skip
"""Metrics that evaluations of a run have where classes are unequal or `federation.stop` names them, in words."""

_LONGEST = 16  # characters of a party's name in a line of progress

_LINES: Mapping[str, str] = {
    "aligned": "{common} rows are common to all, of the server's {rows}",
    "rejoin": "{party} is back after {seconds:.1f} s, in round {round}",
    "stopped": "stopped after round {round}: {reason}",
}


def _reused(event: Event) -> str:
    """A remark on an alignment that was reused."""
    return ", by a kept alignment" if event["kind"] == "aligned" and event.get("reused") == event["common"] else ""


class _Phases:
    """One activity after the other."""

    def __init__(self) -> None:
        self.now: Activity | None = None

    def turn(self, what: str, total: int = 0, unit: str = "", *, done: int = 0) -> Activity:
        """Begins an activity, or continues it. `done`: steps of it so far."""
        if self.now is None or (self.now.what, self.now.total) != (what, total):
            self.end()
            self.now = Activity(what, total, unit, kept=max(done - 1, 0))
            self.now.begin()
        self.now.done = done
        return self.now

    def end(self) -> None:
        if self.now is not None:
            self.now.end()
            self.now = None


class Progress:
    """Prints the meaning of a server's events, and keeps its activity up to date.

    Args:
        doing: activity before the first event; "" for none.
    """

    def __init__(self, console: Screen, doing: str = "") -> None:
        self._console, self._phases = console, _Phases()
        self._validation = ""
        self._diverged = self._failed = False
        if doing:
            self._phases.turn(doing)

    def __call__(self, event: Event) -> None:
        self._turn(event)
        match self._kind(event):
            case "listening":
                waiting = counted(len(event["waiting_for"]), "party")
                self._say(f"server listens on {event['address']}, waiting for {waiting}")
            case "join" if event.get("joined", 0) == event.get("of"):
                self._say(f"all {counted(event['of'], 'party')} joined")
            case "refused" | "failed" | "leave" | "warning" | "checkpoint_failed":
                reason = str(event["reason"]).removeprefix(f"{event['party']} ")  # the line begins with its name
                self._say(f"{event['party']}: {reason}", style="yellow")
            case "privacy":
                self._say(event["said"], style="yellow" if event["weak"] else "dim")
            case "aligned" | "rejoin" | "stopped" as kind:
                self._say(_LINES[kind].format_map(event) + _reused(event))
            case "resume":
                again = "everyone begins again: no checkpoint was taken yet"
                self._say(f"everyone goes on after round {event['round']}" if event["round"] else again)
            case "back_off":
                self._say(back_off_line(event), style="yellow")

    def _turn(self, event: Event) -> None:
        """Updates the activity."""
        match event["kind"]:
            case "listening":
                self._phases.turn("waiting for parties", len(event["waiting_for"]))
            case "join" if "joined" in event and event["joined"] < event["of"]:
                self._phases.turn("waiting for parties", event["of"], done=event["joined"])
            case "join" | "aligned":
                self._phases.turn("preparing")
            case "aligning":
                self._phases.turn("aligning rows", event["of"], "blocks", done=event["done"])
            case "evaluation" if event["part"] == "validation":
                self._validation = f"validation {score_words(event).partition(', ')[0]}"
            case "round":
                self._phases.turn(TRAINING, event["rounds"], "rounds", done=event["round"]).facts = self._facts(event)

    def _kind(self, event: Event) -> str:
        """Returns the event's kind; "" for a member's leave that follows an already reported divergence or error."""
        kind = str(event["kind"])
        if kind in ("diverged", "back_off"):
            self._diverged = kind == "diverged"
        if kind in ("failed", "begin", "rejoin", "round"):
            self._failed = kind == "failed"
        return "" if (self._diverged or self._failed) and kind == "leave" else kind

    def _facts(self, event: Event) -> tuple[str, ...]:
        """Results of a round, the most important first."""
        loss, slowest = event.get("loss"), event["slowest"]
        slow = f"slowest {cut(slowest['party'], _LONGEST)} +{slowest['seconds'] * 1e3:.0f} ms"
        return (
            "loss " + ("-" if loss is None else f"{loss:.4f}"),
            self._validation,
            f"{megabytes(event['bytes_up'])} up",
            f"{megabytes(event['bytes_down'])} down",
            f"epoch {event['epoch']:.1f}" if "epoch" in event else "",
            slow if slowest["party"] else "",
        )

    def close(self) -> None:
        """Ends the activity. The last line of a training stays."""
        now = self._phases.now
        if now is not None and now.what == TRAINING:
            line = plain_line(now, time.monotonic(), self._console.width, over=True)
            self._console.print(Text(line), style="dim", soft_wrap=True)
        self._phases.end()

    def _say(self, text: str, style: str = "dim") -> None:
        self._console.say(text, style)


TRAINING = "training"


class PartyProgress:
    """Prints a party's progress, one line for each event that matters to its operator."""

    _LINES: Mapping[str, str] = {
        "join": "joined, and waits for the others",
        "aligned": "{common} of its {rows} rows are common to all",
        "privacy": "{said}",
        "batch": "{said}",
        "reloaded": "{said}",
        "begin": "begins after round {round} of {rounds}",
        "server_away": "{reason}; dials again",
        "warning": "{reason}",
        "end": "done after round {round}",
    }

    def __init__(self, console: Screen, party: str) -> None:
        self._console, self._party, self._phases = console, party, _Phases()

    def __call__(self, event: Event) -> None:
        match event["kind"]:
            case "join":
                self._phases.turn("waiting for the others")
            case "aligning":
                self._phases.turn("aligning rows", event["of"], "blocks", done=event["done"])
            case "begin" | "checkpoint":
                self._phases.turn(TRAINING, event["rounds"], "rounds", done=event["round"])
            case "server_away" | "end":
                self._phases.end()
        if line := self._LINES.get(event["kind"]):
            self.say(line.format_map(event))

    def say(self, line: str) -> None:
        self._console.say(f"{self._party}: {line}", "dim")

    def close(self) -> None:
        self._phases.end()


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
