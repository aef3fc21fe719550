"""Folders as runs leave them, and pages read by an independent parser."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.common.run.run_folder import STAMP
from tests.cli.data.test_wrong_input import run as command

NAMES = ("ada", "bob", "cyd")
VILE = "<script>alert(1)</script>\"'&"
BEGIN = 1_795_000_000.0


class Page(HTMLParser):
    """A page's text, tags in order, and tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.words = ""
        self._raw = self._in_cell = False
        self.feed(text)
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._raw = tag in ("style", "script")
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._raw = False
        if tag in ("td", "th"):
            self._in_cell = False
        self.words += " " if tag in ("p", "td", "th", "li", "h1", "h2", "h3", "caption", "figcaption") else ""

    def handle_data(self, data: str) -> None:
        if self._raw:
            return
        self.words += data
        if self._in_cell:
            self.rows[-1][-1] += data

    def cells(self, first: str) -> list[list[str]]:
        """The rows with this beginning."""
        return [row for row in self.rows if row and row[0] == first]

    def lines(self, axis: str) -> list[list[tuple[str, str]]]:
        """Points of the curves against an axis, picture by picture."""
        found: list[list[tuple[str, str]]] = []
        now = ""
        for name, attrs in self.tags:
            if name == "div" and "data-axis" in attrs:
                now = str(attrs["data-axis"])
            elif name == "polyline" and now == axis and "data-x" in attrs:  # others are faint
                x, y = (str(attrs[f"data-{way}"]).split(";") for way in "xy")
                assert len(x) == len(y) == len(str(attrs["points"]).split())
                found.append(list(zip(x, y, strict=True)))
        return found


def event(kind: str, time: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "time": BEGIN + time, **more}


def round_of(number: int, loss: float | None = None, after: float = 0.0) -> dict[str, Any]:
    value = 1 / number if loss is None else loss
    return event("round", after + number, round=number, loss=value, rounds=6, epoch=1.0, seconds=1.0,
                 bytes_up=1000 * number, bytes_down=500 * number, slowest={"party": "cyd", "seconds": 0.1})  # fmt: skip


def evaluated(number: int, part: str, accuracy: float, loss: float) -> dict[str, Any]:
    short = "val" if part == "validation" else part
    return event("evaluation", number + 0.25, round=number, part=part,
                 **{f"{short}_accuracy": accuracy, f"{short}_loss": loss})  # fmt: skip


EVENTS = [
    event("listening", 0, address="127.0.0.1:1", waiting_for=list(NAMES)),
    *(event("join", 0.5, party=name, joined=index) for index, name in enumerate(NAMES, 1)),
    event("begin", 0.6, rounds=6, parties=list(NAMES), round=0),
    *(round_of(number) for number in (1, 2)),
    evaluated(2, "validation", 0.5, 1.25),
    event("missing", 3, round=3, party="bob"),
    round_of(3),
    event("late", 3.5, party="bob", kind_of="Embedding", round=3, now=4),
    round_of(4),
    evaluated(4, "validation", 0.75, 0.875),
    event("leave", 4.5, party="cyd", reason="it went"),
    event("join", 5, party="cyd", joined=3),
    *(round_of(number) for number in (5, 6)),
    evaluated(6, "validation", 0.9375, 0.25),
    evaluated(6, "test", 0.921875, 0.3125),
    event("end", 8, status="completed", round=6),
]


def summary(**more: Any) -> dict[str, Any]:
    party = {"up": {"payload": 1900, "wire": 2000}, "down": {"payload": 900, "wire": 1000}}
    both = {"up": {"payload": 5700, "wire": 6000}, "down": {"payload": 2700, "wire": 3000}}
    return {
        "status": "completed", "error": None, "federation": "three", "protocol": "vimadmm", "dataset": "digits",
        "parties": list(NAMES), "rounds": 6, "seconds": 9.5, "seconds_to_first_round": 1.5,
        "metrics": {"train_loss": 1 / 6, "val_accuracy": 0.9375, "val_loss": 0.25, "test_accuracy": 0.921875,
                    "test_loss": 0.3125},
        "best": None, "stopped": None, "bytes": {**both, "parties": dict.fromkeys(NAMES, party)},
        "epsilon": dict.fromkeys(NAMES), "delta": None, "privacy": None, "label_privacy": None,
        "answer_privacy": None, "theorem": None, "pace": None, "missing": {"ada": 0, "bob": 1, "cyd": 0},
        "late": {"ada": 0, "bob": 1, "cyd": 0}, "environment": {"torch": "9.8.7"},
        "timeline": {
            "ada": [{"what": "here", "from": 0.5, "to": 8}],
            "bob": [{"what": "here", "from": 0.5, "to": 8},
                    {"what": "missing", "from": 3, "to": 3, "rounds": [3, 3]}],
            "cyd": [{"what": "here", "from": 0.5, "to": 4.5}, {"what": "away", "from": 4.5, "to": 5},
                    {"what": "here", "from": 5, "to": 8}],
        },
        **more,
    }  # fmt: skip


def leave(folder: Path, said: dict[str, Any] | None = None, events: list[dict[str, Any]] = EVENTS) -> Path:
    """A server's own folder."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"run": "1", "federation": "three", **STAMP}))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "summary.json").write_text(json.dumps(summary() if said is None else said))
    return folder


def add_parties(folder: Path) -> None:
    """Its contents if all members are on this machine."""
    (folder / "config.yaml").write_text(yaml.safe_dump({"federation": {"id": "three", "note": VILE}}))
    for number, name in enumerate(NAMES, 1):
        home = folder / "parties" / name
        home.mkdir(parents=True)
        sent = {"round": 1, "to": "server", "fields": {}, "rows": 64, "mechanism": "none", "epsilon": None}
        lines = [{"reserved": 5}, *[{**sent, "kind": "Embedding", "bytes": 100 * number}] * 2,
                 {**sent, "kind": "Evaluation", "bytes": 7, "repeat": True}]  # fmt: skip
        (home / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "Embed')
        warned = event("warning", 2.0, party=name, reason=f"{name} warns {VILE}")
        (home / "events.jsonl").write_text(json.dumps(warned) + "\n")


def page(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *argv: Path | str) -> Page:
    """The page that the command writes for folders, at its default path."""
    code, said = command(monkeypatch, capfd, "report", *argv)
    assert code == 0, said
    folders = [word for word in argv if isinstance(word, Path)]
    made = folders[0] / ("report.html" if len(folders) == 1 else "comparison.html")
    return Page(made.read_text())
