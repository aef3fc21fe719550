"""Trackers of tests: one that records all calls, and a federation whose tables hold canaries."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from colonnade.common.config.members import Config
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.tracking.tracker import Parameter, Status, TrackedRun, TrackerConfig
from colonnade.server.member.summary import write_whole
from colonnade.simulation.federation import Outcome, Simulation
from colonnade.simulation.folder import summarise, tracked
from tests.support.tables import table_tree, write_tables

CANARY = "canary"
CLASSES = (f"{CANARY}-well", f"{CANARY}-ill")


class Recorder:
    """Remembers all that it receives; fails where it is told to."""

    def __init__(self, run: TrackedRun, config: RecorderConfig) -> None:
        self.run, self.config, self.calls, self.files = run, config, [], {}

    def begin(self, parameters: Mapping[str, Parameter]) -> None:
        self._call("begin", dict(parameters))

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        self._call("metrics", round, dict(values))

    def artefact(self, path: Path) -> None:
        self._call("artefact", path.name)
        self.files[path.name] = path.read_bytes()

    def flush(self) -> None:
        self._call("flush")

    def end(self, status: Status) -> None:
        self._call("end", status)

    def _call(self, *call: Any) -> None:
        self.config.before(call)
        self.calls.append(call)

    def of(self, kind: str) -> list[Any]:
        return [call[1:] for call in self.calls if call[0] == kind]


class RecorderConfig(TrackerConfig):
    """A section whose trackers a test can look at; `before` is called before every call and may raise."""

    name: Literal["recorder"] = "recorder"

    def model_post_init(self, _context: object) -> None:
        object.__setattr__(self, "opened", [])

    def prepare(self) -> None:
        pass

    def before(self, call: tuple[Any, ...]) -> None:
        pass

    def open(self, run: TrackedRun) -> Recorder:
        self.opened.append(Recorder(run, self))  # type: ignore[attr-defined]
        return self.opened[-1]  # type: ignore[attr-defined]

    @property
    def last(self) -> Recorder:
        return self.opened[-1]  # type: ignore[attr-defined]


def with_trackers(config: Config, *trackers: TrackerConfig) -> Config:
    """The same with these trackers at the server."""
    server = config.server.model_copy(update={"trackers": trackers})
    return config.model_copy(update={"server": server})


def run_tracked(config: Config, folder: Path, base: Path = Path(), **more: Any) -> tuple[Outcome, list[Event]]:
    """Runs a federation on the virtual clock with its trackers, as `simulate` does; returns its events too."""
    folder.mkdir(exist_ok=True)
    events: list[Event] = []
    telemetry = Telemetry(None, events.append)
    with closing(telemetry), tracked(telemetry, config, base, folder):
        outcome = Simulation(config, base, telemetry=telemetry, **more).run()
        write_whole(RunFolder(folder).summary, summarise(outcome))
    return outcome, events


def canary_tables(folder: Path, **federation: Any) -> dict[str, Any]:
    """Writes tables with canaries as keys, cells, column names and class names, below a folder of that name.

    Returns the configuration for them, whose paths name canaries too.
    """
    below = folder / f"{CANARY}-data"
    below.mkdir()
    write_tables(below, persons=120)
    for path in below.glob("*.csv"):
        head, *rows = list(csv.reader(path.open()))
        server = head == ["who", "label"]
        named = [f"{CANARY}-{name}" for name in head]
        with path.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(named if server else [*named, f"{CANARY}-town"])
            for number, (key, *cells) in enumerate(rows):
                own = [CLASSES[int(cells[0])]] if server else [*cells, f"{CANARY}-town-{number % 3}"]
                lines.writerow([f"{CANARY} {key}", *own])
    tree = table_tree(classes=list(CLASSES[::-1]), epochs=2, **federation)
    labels = {"path": f"{CANARY}-data/server.csv", "label": f"{CANARY}-label", "id": f"{CANARY}-who"}
    tree["server"]["labels"] |= labels
    for name, party in tree["parties"].items():
        party["data"] |= {"path": f"{CANARY}-data/{name}.csv", "id": f"{CANARY}-who"}
    return tree
