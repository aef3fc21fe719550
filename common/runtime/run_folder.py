"""Where every file of a run is: in the run's folder, and in the folders of its parties.

    RUN/                    of the launcher and the server: `RunFolder`
    RUN/parties/NAME/       of a party, which may also lie by itself on a machine of its own: `PartyFolder`

Files below `checkpoints`, `once` and `once-predictions` are named by the stores that own these folders. Who locks a
folder is in cli/launcher/folder_lock.py. Light: every command imports this.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.common.errors import InputError
from colonnade.common.runtime.durable import write_kept
from colonnade.common.version import VERSION

FORMAT = 1
"""Of the folders that are written here. Version 0.1.0 wrote no number; its folders are of format 0."""

SUMMARY_SCHEMA = 1
"""Of summary.json; 0.1.0 wrote no number."""

STAMP = {"format": FORMAT, "version": VERSION}
"""What a folder says of its format, in the file that names its run."""

_SERVER = "server"


class _Below:
    """A file or a folder in a folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: MemberFolder, _kind: type) -> Path:
        return owner.path / self._name


@dataclass(frozen=True)
class MemberFolder:
    """What is in the folder of any member.

    Args:
        path: of the folder, which need not exist.
    """

    path: Path

    config = _Below("config.yaml")
    """The resolved configuration: at the top, everybody's as far as it is known there; at a party, its own."""
    events = _Below("events.jsonl")
    """All events of training, a line each."""
    prediction_events = _Below("predictions.jsonl")
    """The same of the time in which the model was asked."""
    checkpoints = _Below("checkpoints")
    """The folder of checkpoints."""
    run_cache = _Below("once")
    """The folder of what is made once a run."""
    prediction_cache = _Below("once-predictions")
    """The folder of what is made once for predictions."""
    encoder = _Below("encoder.json")
    """How the member's columns were encoded."""

    @property
    def begun(self) -> bool:
        """Whether a run was begun here, by the launcher, a server or a party."""
        run = RunFolder(self.path)
        return any(path.exists() for path in (run.summary, self.events, PartyFolder(self.path).ledger, run.run))

    def make(self) -> None:
        """Makes the folder where it is not there; the process's umask says who may read it. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)

    def refuse_newer(self) -> None:
        """Refuses a folder whose format is not known here.

        Raises:
            InputError: it names the version that wrote the folder.
        """
        run = RunFolder(self.path)
        for path in (run.run, run.simulated, PartyFolder(self.path).pinned):
            record = read_record(path) or {}
            found = record.get("format", 0)
            if type(found) is not int or not 0 <= found <= FORMAT:
                wrote = f"colonnade {record['version']!s:.40}" if "version" in record else "a newer colonnade"
                raise InputError(
                    f"{path}: the folder is of format {found!r:.40}, and colonnade {VERSION} reads up to {FORMAT}",
                    hint=f"it was written by {wrote}: take that version, or a newer one",
                )


@dataclass(frozen=True)
class PartyFolder(MemberFolder):
    """The folder of a party."""

    ledger = _Below("ledger.jsonl")
    """What left the party, a line a message."""
    pinned = _Below("pinned.json")
    """The run that the folder belongs to."""
    log = _Below("log.txt")
    """What its process printed, where the launcher started it."""
    answers_log = _Below("answers.log")
    """The same of the process that answers for a trained model."""
    own_predictions = _Below("own-predictions.csv")
    """What it predicts itself, which stays at home."""
    chaos = _Below("chaos.json")
    """The faults on purpose that have happened."""
    capture = _Below("capture.bin")
    """What crossed its link about training rows, where it captured."""
    evaluation_capture = _Below("capture-evaluations.bin")
    """The same about validation and test rows."""
    export = _Below("export")
    """The folder of its exported part of the model."""


@dataclass(frozen=True)
class RunFolder(MemberFolder):
    """The folder of a run: the server's, and of the launcher that started everyone."""

    summary = _Below("summary.json")
    """What the run came to."""
    run = _Below("run.json")
    """The run's number, and the folder's format."""
    launch = _Below("launch.json")
    """How `up` started it."""
    simulated = _Below("simulated.json")
    """How `simulate` ran it, and the folder's format."""
    server_config = _Below("server.yaml")
    """The server's own configuration, where the launcher keeps everybody's in `config`."""
    session = _Below("session")
    """The number of the newest session."""
    noisy_labels = _Below("noisy-labels.safetensors")
    """The training labels with noise, where they are private."""
    answers = _Below("answers.json")
    """How many answers went out about every row, where answers are private."""
    server_log = _Below("server.log")
    """What the server's process printed, where the launcher started it."""
    predictions = _Below("predictions.csv")
    """Predictions that were asked for with the run."""
    tokens = _Below("serve.tokens")
    """The callers of a served model."""
    report = _Below("report.html")
    """The run's page."""
    comparison = _Below("comparison.html")
    """The page that compares this run with others."""
    card = _Below("card.md")
    """The model's card."""
    explained = _Below("explain.json")
    """How much each party matters, in numbers."""
    explained_page = _Below("explain.html")
    """The same as a page."""
    attacks = _Below("attacks")
    """The folder of what attacks have found."""

    def party(self, name: str) -> PartyFolder:
        """The folder of a party. A name is no path; who reads one from a file has to see to that."""
        return PartyFolder(self.path / "parties" / name)

    def member(self, name: str) -> RunFolder | PartyFolder:
        """The same, or this folder for the server."""
        return self if name == _SERVER else self.party(name)

    def record(self, number: str, federation: str) -> None:
        """Writes the run's number, once. Raises EnvironmentFault."""
        if not self.run.exists():
            write_kept(self.run, json.dumps({"run": number, "federation": federation, **STAMP}).encode())

    def number(self) -> str | None:
        """The run's number; None if it is missing or was altered."""
        found = (read_record(self.run) or {}).get("run")
        return None if found is None else str(found)

    def base(self) -> Path | None:
        """The folder that paths in the configuration are relative to; None where `up` has begun no run."""
        return _base(self.launch)

    def simulated_base(self) -> Path | None:
        """The same of a simulated run."""
        return _base(self.simulated)

    def read_summary(self) -> dict[str, Any] | None:
        """What summary.json says; None if it is missing, or no summary."""
        return read_record(self.summary)


def read_record(path: Path) -> dict[str, Any] | None:
    """The keys and values of a JSON file; None where there is no such file, or something else in it."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _base(path: Path) -> Path | None:
    found = (read_record(path) or {}).get("base")
    return Path(found) if isinstance(found, str) else None
