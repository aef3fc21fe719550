"""Layout of a run's files: the run's folder and the folders of its parties.

    RUN/                    of the launcher and the server: `RunFolder`
    RUN/parties/NAME/       of a party, possibly alone on another machine: `PartyFolder`

Files below `checkpoints`, `once` and `once-predictions` are named by the stores that own these folders. Light: every
command imports this.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.common.errors import InputError
from colonnade.common.run.files import refuse_path, write_kept
from colonnade.common.run.json_text import Witness, parse_json, read_lines, sealed, unsealed
from colonnade.common.version import VERSION

FORMAT = 1  # format of a run's folder, written since 0.2.0

SUMMARY_SCHEMA = 1  # format of summary.json

STAMP = {"format": FORMAT, "version": VERSION}

_SERVER = "server"


class _Below:
    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: MemberFolder, _kind: type) -> Path:
        return owner.path / self._name


@dataclass(frozen=True)
class MemberFolder:
    """Files in the folder of any member, which need not exist."""

    path: Path

    config = _Below("config.yaml")  # resolved: in the run's folder every member's, as far as known; at a party, its own
    events = _Below("events.jsonl")  # events of training, one per line
    prediction_events = _Below("predictions.jsonl")  # events of predictions, one per line
    checkpoints = _Below("checkpoints")
    run_cache = _Below("once")
    prediction_cache = _Below("once-predictions")
    encoder = _Below("encoder.json")
    distribution = _Below("distribution.json")  # training rows by column and bin, to compare predictions with
    batches = _Below("batches.jsonl")  # a line a batch of predictions: missing values, new words, shifted columns
    tables = _Below("tables")  # copies of the member's tables, as they were read
    start = _Below("start.secret")  # the secret that the member's own draws follow from, where the start is not public
    report = _Below("report.html")
    trackers = _Below("trackers.json")  # what trackers keep for a resumed run, such as MLflow's number of it

    @property
    def begun(self) -> bool:
        """True if a run was begun here, by the launcher, a server or a party."""
        run = RunFolder(self.path)
        return any(path.exists() for path in (run.summary, self.events, run.run)) or PartyFolder(self.path).has_sent

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def refuse_unreadable(self) -> None:
        """Raises InputError for a folder of 0.1.0 or of a newer format; the hint names a version that reads it."""
        run = RunFolder(self.path)
        for path in (run.run, run.simulated, PartyFolder(self.path).pinned):
            record = read_record(path)
            if record is None:  # missing, or torn: refused by what needs it
                continue
            if "format" not in record:
                raise InputError(
                    f"{path}: the folder was written by colonnade 0.1.0, and {VERSION} reads runs of 0.2.0 and later",
                    hint="resume it, predict with it and read it with colonnade 0.2.0",
                )
            found = record["format"]
            if type(found) is not int or not 1 <= found <= FORMAT:
                wrote = f"colonnade {record['version']!s:.40}" if "version" in record else "a newer colonnade"
                raise InputError(
                    f"{path}: the folder is of format {found!r:.40}, and colonnade {VERSION} reads up to {FORMAT}",
                    hint=f"it was written by {wrote}: take that version, or a newer one",
                )


@dataclass(frozen=True)
class PartyFolder(MemberFolder):
    ledger = _Below("ledger.jsonl")  # the ledger: messages that left the party, one per line
    pinned = _Below("pinned.json")  # the run that the folder belongs to
    model_record = pinned  # names the round of the run's model
    log = _Below("log.txt")  # output of its process, if the launcher started it
    answers_log = _Below("answers.log")  # output of its prediction process
    own_predictions = _Below("own-predictions.csv")  # its own predictions, which stay local
    reasons = _Below("reasons.csv")  # reasons of the scores that it took part in, which stay local
    chaos = _Below("chaos.json")  # injected faults that occurred
    capture = _Below("capture.bin")  # captured messages about training rows
    evaluation_capture = _Below("capture-evaluations.bin")  # captured messages about validation and test rows

    @property
    def has_sent(self) -> bool:
        """True if a message of a run has left: its ledger has more than the control messages of joining one."""
        return any("control" not in entry for entry in read_lines(self.ledger))

    export = _Below("export")  # its exported part of the model
    bins = _Below("bins.html")
    codes = _Below("codes")  # the released codes of its rows, each drawn once, and the encoder that makes them


@dataclass(frozen=True)
class RunFolder(MemberFolder):
    """The folder of a run: the server's, and that of the launcher that started everyone."""

    summary = _Below("summary.json")
    run = _Below("run.json")  # the run's number, and the folder's format
    model_record = _Below("checkpoints/committed.json")  # checkpoints of all members, and the round of the run's model
    launch = _Below("launch.json")  # launch settings of `up`
    simulated = _Below("simulated.json")  # settings of `simulate`, and the folder's format
    server_config = _Below("server.yaml")  # the server's own, where the launcher stores every member's in `config`
    session = _Below("session")
    noisy_labels = _Below("noisy-labels.safetensors")  # the training labels with noise, where they are private
    answers = _Below("answers.json")  # number of responses sent about every row, with response noise
    hashes = _Below("answers.hash")  # shows whether `answers` is the newest
    server_log = _Below("server.log")  # output of the server's process, if the launcher started it
    scores = _Below("scores.csv")  # the server's own, of a run with two classes: rows' scores, with keys and classes
    predictions = _Below("predictions.csv")  # predictions requested together with the run
    tokens = _Below("serve.tokens")  # the callers of a served model
    comparison = _Below("comparison.html")  # the page that compares this run with others
    card = _Below("card.md")
    card_answers = _Below("card.yaml")  # what people have written for the model card
    scorecard = _Below("scorecard.html")
    explained = _Below("explain.json")  # contribution of each party, as JSON
    explained_page = _Below("explain.html")
    attacks = _Below("attacks")

    def party(self, name: str) -> PartyFolder:
        """The folder of a party. Refuses a name that is a path, which an altered file may hold."""
        return PartyFolder(self.path / "parties" / refuse_path(name))

    def member(self, name: str) -> RunFolder | PartyFolder:
        """The folder of a member: this one for the server."""
        return self if name == _SERVER else self.party(name)

    def record(self, number: str, federation: str, start: str) -> None:
        """Writes the run's number and whether the server's start is secret or public, once.

        `stops` says that the run was begun under an early stop by default, which versions before 0.3 lacked.
        """
        if not self.run.exists():
            content = {"run": number, "federation": federation, "start": start, "stops": True, **STAMP}
            write_kept(self.run, sealed(content))

    @property
    def witness(self) -> Witness:
        return Witness(self.hashes)

    def start_record(self) -> str | None:
        """Whether the server's start is secret or public, by the run's record: "" for older versions; None without a
        run.
        """
        return str((self._record() or {}).get("start", "")) if self.run.exists() else None

    def stops(self) -> bool | None:
        """True if the run was begun under an early stop by default; None if no run was begun."""
        return bool((self._record() or {}).get("stops")) if self.run.exists() else None

    def number(self) -> str | None:
        """The run's number; None if it is missing or was altered."""
        found = (self._record() or {}).get("run")
        return None if found is None else str(found)

    def _record(self) -> dict[str, Any] | None:
        try:
            return unsealed(self.run.read_bytes())
        except (OSError, ValueError):
            return None

    def place(self, base: Path, files: Sequence[str]) -> dict[str, object]:
        """Content of launch.json about the folder that paths in the configuration are relative to.

        Args:
            files: those paths that exist beside it.
        """
        return {"base": str(base), "up": os.path.relpath(base.resolve(), self.path.resolve()), "files": list(files)}

    def base(self) -> Path | None:
        """The folder that paths in the configuration are relative to; None if `up` has begun no run.

        In a run that was moved or copied together with this folder, it is the one at the new place: it lies there as it
        lay, with all its files.

        Raises:
            InputError: only some of the files are there.
        """
        return self._base(self.launch)

    def begun_base(self, hint: str) -> Path:
        """As `base`, but raises InputError with this hint instead of returning None."""
        if (found := self.base()) is None:
            raise InputError(f"{self.path} holds no run that `up` or `simulate` has begun", hint=hint)
        return found

    @property
    def virtual(self) -> bool:
        """True if the newest start was on the virtual clock."""
        return (read_record(self.launch) or read_record(self.simulated) or {}).get("clock") == "virtual"

    def simulated_base(self) -> Path | None:
        """As `base`, for a simulated run."""
        return self._base(self.simulated)

    def _base(self, path: Path) -> Path | None:
        found = read_record(path) or {}
        base, up, files = (found.get(key) for key in ("base", "up", "files"))
        if not isinstance(base, str):
            return None
        if not isinstance(up, str) or not isinstance(files, list):  # of an earlier version
            return Path(base)
        here = Path(os.path.normpath(self.path.resolve() / up))
        there = [(here / str(name)).exists() for name in files]
        if here == Path(base).resolve() or not any(there):
            return Path(base)
        if not all(there):
            raise InputError(
                f"{self.path} was moved or copied: {here} has {files[there.index(True)]} and no "
                f"{files[there.index(False)]}, and the run was begun with the files in {base}",
                hint=f"bring all of them to {here}; or remove those that are there, and it reads {base}",
            )
        return here

    def forget_results(self) -> None:
        """Removes what an earlier start has left about its model: the run goes on to another one."""
        self.summary.unlink(missing_ok=True)
        self.scores.unlink(missing_ok=True)

    def read_summary(self) -> dict[str, Any] | None:
        """Content of summary.json; None if it is missing, or not a summary."""
        return read_record(self.summary)


def read_record(path: Path) -> dict[str, Any] | None:
    """The keys and values of a JSON file; None if it is missing or holds anything else."""
    try:
        found = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def describe_source(source: Mapping[str, Any]) -> str:
    """`dataset` of summary.json, from the section of the labels: 'digits', or a file, without an absolute folder."""
    found = str(next((source[key] for key in ("name", "folder", "path") if source.get(key)), source.get("source")))
    return Path(found).name if Path(found).is_absolute() else found
