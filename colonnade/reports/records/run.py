"""Reads a run's folder: results, events, and their seconds from the first event on, without the time between starts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, ValidationError

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import InputError
from colonnade.common.observability.telemetry import Event
from colonnade.common.parsing.yaml_tree import parse_yaml
from colonnade.common.run.json_text import is_number, read_lines
from colonnade.common.run.run_folder import PartyFolder, RunFolder, describe_source, read_record
from colonnade.reports.console.summary import best_of_stopped
from colonnade.reports.guarantee import with_ledgers
from colonnade.reports.records.ledgers import Book, read_books
from colonnade.server.member.timeline import follow


class Clock:
    """Converts times of events to seconds of the run.

    The clock stops between the last event of one start and the next `listening` event, so that pauses before a
    resumption do not count.

    Args:
        virtual: times come from a simulation, which begins at 0.
    """

    def __init__(self, events: Sequence[Event], *, virtual: bool = False) -> None:
        self._first: float = events[0]["time"] if events and not virtual else 0.0
        self._again: list[float] = []  # times at which the clock resumes
        self._lost = [0.0]  # paused seconds before each of these, with the beginning
        last: Event | None = None  # last event within a start: a warning may precede `listening`
        for event in events:
            if event["kind"] == "listening" and last is not None:
                self._again.append(event["time"])
                self._lost.append(self._lost[-1] + max(0.0, event["time"] - last["time"]))
            last = last if event["kind"] == "warning" else event
        self.starts, self.paused = len(self._lost), self._lost[-1]
        self.end = self.seconds(events[-1]["time"]) if events else 0.0

    def seconds(self, time: float) -> float:
        return max(0.0, time - self._first - self._lost[bisect_right(self._again, time)])


EVALUATED = tuple(
    f"{part}_{name}" for name in ("auc", "balanced_accuracy", "accuracy", "rmse", "loss") for part in ("val", "test")
)


@dataclass(frozen=True)
class Measured:
    """A value with its time.

    Args:
        seconds: on the run's clock.
        bytes: on the wire both ways at the end of the round; 0 if not counted.
    """

    round: int
    seconds: float
    bytes: int
    value: float


class Trace:
    """The values of every round and evaluation that counts.

    After a rollback, only the repetition of later rounds counts.

    Attributes:
        series: by name: train_loss, and for val and test accuracy or rmse, and loss; in order.
        ends: second at which a round ended, by round.
        slowest: party that responded last, by round.
        lags: seconds from the first response to the last, by round.
        lost: values that were not finite, as in a diverged run.
    """

    def __init__(self, events: Sequence[Event], clock: Clock) -> None:
        self.series: dict[str, list[Measured]] = {name: [] for name in ("train_loss", *EVALUATED)}
        self.ends: dict[int, float] = {}
        self.slowest: dict[int, str] = {}
        self.lags: dict[int, float] = {}
        self.lost = 0
        self._bytes = 0
        for event in events:
            now = clock.seconds(event["time"])
            match event["kind"]:
                case "begin" | "resume":
                    self._go_back(event.get("round", 0))
                case "round":
                    self._round(event, now)
                case "evaluation":
                    for name in EVALUATED:
                        self._add(name, event, name, now)

    def _round(self, event: Event, now: float) -> None:
        self._bytes = _whole(event.get("bytes_up")) + _whole(event.get("bytes_down"))
        self.ends[event["round"]] = now
        slowest = event.get("slowest")
        if isinstance(slowest, dict) and slowest.get("party"):
            self.slowest[event["round"]] = str(slowest["party"])
            self.lags[event["round"]] = _seconds(slowest.get("seconds"))
        self._add("train_loss", event, "loss", now)

    def _add(self, name: str, event: Event, key: str, now: float) -> None:
        if key not in event:
            return
        value = event[key]
        if is_number(value):
            self.series[name].append(Measured(event.get("round", 0), now, self._bytes, float(value)))
        else:
            self.lost += 1

    def _go_back(self, round: int) -> None:
        for name, values in self.series.items():
            self.series[name] = [measured for measured in values if measured.round <= round]
        self.ends = {number: end for number, end in self.ends.items() if number <= round}
        self.slowest = {number: party for number, party in self.slowest.items() if number <= round}
        self.lags = {number: lag for number, lag in self.lags.items() if number <= round}


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _seconds(value: object) -> float:
    return float(value) if is_number(value) else 0.0


_OF_A_SERVER = ("listening", "begin", "round")
_SCORES = ("_accuracy", "_auc", "_rmse", "_loss")
_ROUNDS = ("round", "missing", "evaluation")
_HINT = "give the folder that `up`, `server` or `simulate` printed"
_POOLED, _BESIDE = "centralized", 200  # folders that are looked at
BASELINES = ("test_baseline_accuracy", "test_baseline_rmse")
"""Metrics of a model that knows no column: equal in all rounds, for they depend only on the rows."""

_ALONE = "`colonnade report` writes its own page, of one folder that is not followed; a run's is made from the server's"


class _Details(BaseModel):
    """Of the rows of a part."""

    model_config = ConfigDict(strict=True)

    confusion: list[list[NonNegativeInt]] = []
    gains: list[dict[str, FiniteFloat | None]] = []
    reliability: list[dict[str, FiniteFloat]] = []
    decision: dict[str, Any] | None = None
    residuals: dict[str, Any] | None = None


class _Summary(BaseModel):
    """Keys of summary.json that pages use."""

    model_config = ConfigDict(strict=True)

    status: str
    protocol: str
    parties: list[Annotated[str, Field(max_length=255)]]
    rounds: NonNegativeInt
    seconds: FiniteFloat
    metrics: dict[str, float | None]
    rows: dict[str, NonNegativeInt] = {}
    details: dict[str, _Details] | None = None
    decision: dict[str, Any] | None = None
    classes: dict[str, Any] | None = None
    absent: dict[str, FiniteFloat] | None = None


@dataclass(frozen=True)
class RecordedRun:
    """Content of a run's folder.

    Attributes:
        summary: content of summary.json, its privacy as the ledgers in the folder have it; for an unfinished run,
            built from its events.
        incidents: events of the parties whose folders are here, by time.
        books: releases of the parties, by kind of message.
        config: text of the configuration, "" if missing.
        explained: content of explain.json; None if it is missing, of version 0.2, or of another model than the run's.
        outdated: says of which model the explain.json is that was left out, and what makes it anew; else "".
        pooled: name and summary of a run on the same tables and rows pooled in one place; None without one.
    """

    folder: Path
    name: str
    summary: dict[str, Any]
    events: list[Event]
    incidents: list[Event]
    books: dict[str, Book]
    config: str
    explained: dict[str, Any] | None
    outdated: str
    clock: Clock
    trace: Trace
    pooled: tuple[str, dict[str, Any]] | None = None

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.summary["parties"])

    @cached_property
    def sections(self) -> Mapping[str, Any]:
        """The configuration's sections; those that are missing are empty."""
        return sections_of(self.config)

    @property
    def virtual(self) -> bool:
        return self.summary.get("clock") == "virtual"

    def timeline(self) -> dict[str, list[dict[str, Any]]]:
        """Presence of the members: from summary.json, or from the events."""
        recorded: dict[str, list[dict[str, Any]]] | None = self.summary.get("timeline")
        return follow(self.events, self.parties) if recorded is None else recorded

    def since_first(self, seconds: float) -> float:
        """Converts seconds since the first event, as in a timeline, to seconds of the run."""
        return self.clock.seconds((self.events[0]["time"] if self.events else 0.0) + seconds)


def read_run(folder: Path) -> RecordedRun:
    """Reads a folder; refuses one without a server's run, of a newer format, or with a malformed summary.json."""
    run = RunFolder(folder)
    run.refuse_unreadable()
    events = [event for event in read_lines(run.events) if _is_whole(event)]
    summary = _summary(run)
    of_a_party = is_party(folder)
    if summary is None and (of_a_party or not any(event["kind"] in _OF_A_SERVER for event in events)):
        if of_a_party:
            raise InputError(f"{folder} is a party's own folder", hint=_ALONE)
        raise InputError(f"{folder} holds no run", hint=_HINT)
    config = _text(run.config) or _text(run.server_config)
    ended = summary is not None and _is_newest(events)
    said = with_ledgers(summary, folder) if summary is not None and ended else _so_far(events, config)
    if run.virtual:
        said = {**said, "clock": "virtual"}
    clock = Clock(events, virtual=said.get("clock") == "virtual")
    explained, outdated = _explained(run, said)
    return RecordedRun(
        folder, folder.resolve().name, said, events, incidents=_incidents(run, said["parties"]),
        books=read_books(folder, said["parties"]), config=config, explained=explained,
        outdated=outdated, clock=clock, trace=Trace(events, clock), pooled=_pooled(run, said),
    )  # fmt: skip


def is_party(folder: Path) -> bool:
    """True of a party's own folder, in which something was sent."""
    return PartyFolder(folder).ledger.exists() and not RunFolder(folder).run.exists()


def _summary(run: RunFolder) -> dict[str, Any] | None:
    path = run.summary
    if not path.is_file():
        return None
    found = run.read_summary()
    hint = "it was altered, or written by another version; without it, the events alone are used"
    if found is None:
        raise InputError(f"{path} is torn or no summary", hint=hint)
    try:
        _Summary.model_validate(found)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {place}: {first['msg']}, found {first['input']!r:.80}", hint=hint) from None
    if found["protocol"] not in CONTRACTS:
        raise InputError(
            f"{path}: protocol: {found['protocol']!r:.80} is not known here",
            hint=f"{hint}; or install the package of its protocol",
        )
    return found


def _explained(run: RunFolder, said: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """Content of explain.json, if it is of the run's model; else None, and why it is left out."""
    found = read_record(run.explained)
    if not found or "without" not in found:  # of a version with another method
        return None, ""
    if other := other_model(run, said, found):
        again = "when it has ended, " if said["status"] == "unfinished" else ""
        return None, f"{run.explained.name} is left out: it is of {other}; {again}colonnade explain RUN makes it anew"
    return found, ""


def other_model(run: RunFolder, said: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """The model that a file in the run's folder is of, in words, and the run's own; "" if they are the same.

    Args:
        said: the run's summary.
        made: content of the file, with `round` and, since 0.3, `run`.
    """
    if made.get("run") not in (None, run.number()):
        return "another run"
    model = model_round(said)
    if made.get("round") == model:
        return ""
    now = "the run has none yet" if model is None else f"the run's is that of round {model}"
    return f"the model of round {made.get('round')}, and {now}"


def model_round(said: Mapping[str, Any]) -> int | None:
    """The round whose model is the run's; None before its end."""
    if (model := said.get("model")) is not None:
        return int(model["round"])
    best = best_of_stopped(said)  # a summary of version 0.2
    return None if said["status"] == "unfinished" else int(best["round"] if best else said["rounds"])


def folders_beside(folder: Path) -> list[Path]:
    """A folder's siblings, possibly of other users: reading them may raise OSError."""
    own = folder.resolve()
    try:
        return [each for each in own.parent.iterdir() if each != own]
    except OSError:
        return []


def _pooled(run: RunFolder, said: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The newest completed run of `centralized` in a folder beside this one, if its tables and rows are the same."""
    if said["status"] == "unfinished" or said["protocol"] == _POOLED or not said.get("rows_hash"):
        return None
    times, tables = dict[RunFolder, float](), _tables(run, said["parties"])
    for other in map(RunFolder, folders_beside(run.path) if tables else ()):
        with suppress(OSError):
            times[other] = other.summary.stat().st_mtime
    for other in sorted(times, key=lambda each: -times[each])[:_BESIDE]:
        found = other.read_summary() or {}
        whole = found.get("protocol") == _POOLED and found.get("status") == "completed" and not found.get("warning")
        if whole and same_rows(said, found) and _tables(other, said["parties"]) == tables:
            return other.path.name, found
    return None


def same_rows(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two runs are known to train and test on rows with the same keys and labels."""
    if not one.get("rows_hash") or any(one.get(key) != other.get(key) for key in ("parties", "rows", "rows_hash")):
        return False
    names = [(said.get("classes") or {}).get("names") for said in (one, other)]
    ours, theirs = (said.get("metrics") or {} for said in (one, other))
    baselines = [(ours.get(key), theirs.get(key)) for key in BASELINES]
    return names[0] == names[1] and all(
        a == b or (is_number(a) and is_number(b) and math.isclose(a, b, rel_tol=1e-6)) for a, b in baselines
    )


def _tables(run: RunFolder, parties: Sequence[str]) -> list[str] | None:
    """Fingerprints of the parties' tables; None unless all are known here."""
    records = [read_record(run.party(name).encoder) or {} for name in parties]
    found = [str(record["fingerprint"]) for record in records if record.get("fingerprint")]
    return found if found and len(found) == len(parties) else None


def _is_whole(event: Event) -> bool:
    """True if an event has a kind and a time, as this package writes them."""
    kind, time, round = event.get("kind"), event.get("time"), event.get("round", 0)
    return (
        isinstance(kind, str)
        and is_number(time)
        and isinstance(round, int)
        and (kind not in _ROUNDS or "round" in event)
    )


def _is_newest(events: Sequence[Event]) -> bool:
    """True if no start has begun since a run last ended; otherwise the summary belongs to an earlier start."""
    ends = [at for at, event in enumerate(events) if event["kind"] == "end"]
    return not ends or not any(event["kind"] in _OF_A_SERVER for event in events[ends[-1] + 1 :])


def _so_far(events: Sequence[Event], config: str) -> dict[str, Any]:
    """Summary of a run without one, from events and configuration."""
    begun = next((event for event in reversed(events) if event["kind"] == "begin"), {})
    listening = next((event for event in events if event["kind"] == "listening"), {})
    names = begun.get("parties") or listening.get("waiting_for") or []
    rounds = [event for event in events if event["kind"] == "round"]
    losses = [event["loss"] for event in rounds if "loss" in event]  # a skipped round has none
    metrics = {"train_loss": losses[-1]} if losses else {}
    for event in events:
        if event["kind"] == "evaluation":
            metrics |= {key: value for key, value in event.items() if key.endswith(_SCORES)}
    return {
        "status": "unfinished",
        **_agreed(config),
        "parties": names,
        "rounds": rounds[-1]["round"] if rounds else 0,
        "seconds": Clock(events).end,
        "metrics": metrics,
        "bytes": {way: {"wire": rounds[-1].get(f"bytes_{way}", 0)} for way in ("up", "down")} if rounds else {},
        **{kind: _by_party(events, kind, names) for kind in ("missing", "late")},
    }


def _agreed(config: str) -> dict[str, Any]:
    sections = sections_of(config)
    if not (federation := sections["federation"]):
        return {"protocol": ""}
    labels = sections["server"].get("labels")
    named = {"federation": str(federation["id"]), "protocol": str(federation["protocol"]["name"])}
    return named | ({"dataset": describe_source(labels)} if labels else {})


def sections_of(config: str) -> Mapping[str, Any]:
    """The sections of a configuration's text; missing or invalid ones are empty."""
    tree: Any = None
    with suppress(yaml.YAMLError):
        tree = parse_yaml(config)
    sections = tree if isinstance(tree, dict) else {}
    return defaultdict(dict, {name: below for name, below in sections.items() if isinstance(below, dict)})


def _by_party(events: Sequence[Event], kind: str, names: Sequence[str]) -> dict[str, int]:
    found = Counter(str(event.get("party")) for event in events if event["kind"] == kind)
    return {name: found[name] for name in names}


def _incidents(run: RunFolder, parties: Sequence[str]) -> list[Event]:
    found = []
    for name in parties:
        found += [{**event, "party": name} for event in read_lines(run.party(name).events) if _is_whole(event)]
    return sorted(found, key=lambda event: float(event["time"]))


def _text(path: Path) -> str:
    return path.read_text(errors="replace", encoding="utf-8") if path.is_file() else ""
