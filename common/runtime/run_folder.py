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


@dataclass(frozen=True)
class MemberFolder:
    """What is in the folder of any member.

    Args:
        path: of the folder, which need not exist.
    """

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration: at the top, everybody's as far as it is known there; at a party, its own."""
        return self.path / "config.yaml"

    @property
    def events(self) -> Path:
        """All events of training, a line each."""
        return self.path / "events.jsonl"

    @property
    def prediction_events(self) -> Path:
        """The same of the time in which the model was asked."""
        return self.path / "predictions.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def once(self) -> Path:
        """The folder of what is made once a run."""
        return self.path / "once"

    @property
    def once_predictions(self) -> Path:
        """The folder of what is made once for predictions."""
        return self.path / "once-predictions"

    @property
    def encoder(self) -> Path:
        """How the member's columns were encoded."""
        return self.path / "encoder.json"

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

    @property
    def ledger(self) -> Path:
        """What left the party, a line a message."""
        return self.path / "ledger.jsonl"

    @property
    def pinned(self) -> Path:
        """The run that the folder belongs to."""
        return self.path / "pinned.json"

    @property
    def log(self) -> Path:
        """What its process printed, where the launcher started it."""
        return self.path / "log.txt"

    @property
    def answers_log(self) -> Path:
        """The same of the process that answers for a trained model."""
        return self.path / "answers.log"

    @property
    def own_predictions(self) -> Path:
        """What it predicts itself, which stays at home."""
        return self.path / "own-predictions.csv"

    @property
    def chaos(self) -> Path:
        """The faults on purpose that have happened."""
        return self.path / "chaos.json"

    @property
    def capture(self) -> Path:
        """What crossed its link about training rows, where it captured."""
        return self.path / "capture.bin"

    @property
    def evaluation_capture(self) -> Path:
        """The same about validation and test rows."""
        return self.path / "capture-evaluations.bin"

    @property
    def export(self) -> Path:
        """The folder of its exported part of the model."""
        return self.path / "export"


@dataclass(frozen=True)
class RunFolder(MemberFolder):
    """The folder of a run: the server's, and of the launcher that started everyone."""

    @property
    def summary(self) -> Path:
        """What the run came to."""
        return self.path / "summary.json"

    @property
    def run(self) -> Path:
        """The run's number, and the folder's format."""
        return self.path / "run.json"

    @property
    def launch(self) -> Path:
        """How `up` started it."""
        return self.path / "launch.json"

    @property
    def simulated(self) -> Path:
        """How `simulate` ran it, and the folder's format."""
        return self.path / "simulated.json"

    @property
    def server_config(self) -> Path:
        """The server's own configuration, where the launcher keeps everybody's in `config`."""
        return self.path / "server.yaml"

    @property
    def session(self) -> Path:
        """The number of the newest session."""
        return self.path / "session"

    @property
    def noisy_labels(self) -> Path:
        """The training labels with noise, where they are private."""
        return self.path / "noisy-labels.safetensors"

    @property
    def answers(self) -> Path:
        """How many answers went out about every row, where answers are private."""
        return self.path / "answers.json"

    @property
    def server_log(self) -> Path:
        """What the server's process printed, where the launcher started it."""
        return self.path / "server.log"

    @property
    def predictions(self) -> Path:
        """Predictions that were asked for with the run."""
        return self.path / "predictions.csv"

    @property
    def tokens(self) -> Path:
        """The callers of a served model."""
        return self.path / "serve.tokens"

    @property
    def report(self) -> Path:
        """The run's page."""
        return self.path / "report.html"

    @property
    def comparison(self) -> Path:
        """The page that compares this run with others."""
        return self.path / "comparison.html"

    @property
    def card(self) -> Path:
        """The model's card."""
        return self.path / "card.md"

    @property
    def explained(self) -> Path:
        """How much each party matters, in numbers."""
        return self.path / "explain.json"

    @property
    def explained_page(self) -> Path:
        """The same as a page."""
        return self.path / "explain.html"

    @property
    def attacks(self) -> Path:
        """The folder of what attacks have found."""
        return self.path / "attacks"

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
