"""A member's checkpoints: its state after certain rounds, on its own disk.

A checkpoint is two files: the tensors (safetensors) and a record (JSON) that describes them, with the checksums of
both. The tensors are written first; each file is written under a temporary name, forced to the disk, and then renamed.
A record that exists is therefore complete, or was altered afterwards, which its checksum shows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from colonnade.common.errors import CheckpointError, EnvironmentFault, disk_faults
from colonnade.common.run.files import open_own, write_durably
from colonnade.common.run.json_text import parse_json, unsealed, whole
from colonnade.common.run.state import Snapshot

_FORMAT = 1
_AS_BEFORE = "restore the configuration that the run began with, and the files it names, or begin a new run"
_FREE = ("protocol.tau", "protocol.local_steps")  # keys that a run without differential privacy may change


@dataclass(frozen=True)
class Owner:
    """Owner of checkpoints. Checkpoints of another owner are not restored.

    Args:
        run: the run's own number, drawn by the server at its beginning.
        config: dotted key of the federation section -> hash of its value, for the values that a run cannot change.
        own: the same of the member's own section (common/config/own_settings.py). Of two sides, the keys that both
            have are compared.
    """

    member: str
    run: str
    config: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints in a folder, which is created with the first; `warn` gets the reason for each unusable one."""

    def __init__(self, folder: Path, warn: Callable[[str], None] = lambda _reason: None) -> None:
        self._folder, self._warn = folder, warn

    def prepare(self) -> None:
        """Checks that the folder can be written, and removes incomplete files of an earlier start."""
        with disk_faults(
            f"checkpoints cannot be written to {self._folder}", "choose another --out, or make the folder writable"
        ):
            self._folder.mkdir(parents=True, exist_ok=True)
            for partial in self._folder.glob("*.partial"):
                partial.unlink()
            probe = self._folder / "probe.partial"
            os.close(open_own(probe, os.O_WRONLY | os.O_CREAT))
            probe.unlink()
            if not any(self._folder.iterdir()):
                self._folder.rmdir()  # a start that fails leaves nothing behind

    def save(self, round: int, snapshot: Snapshot, owner: Owner) -> None:
        """Writes a checkpoint; it is on the disk when this returns.

        Raises:
            CheckpointError: a number of the state is not finite; nothing is written.
            EnvironmentFault: the disk refuses it; no part of it is left.
        """
        _refuse_not_finite(round, snapshot)
        tensors = safetensors.torch.save(dict(snapshot.tensors))
        record = {
            "format": _FORMAT,
            "member": owner.member,
            "run": owner.run,
            "round": round,
            "config": dict(owner.config),
            "own": dict(owner.own),
            "tensors": hashlib.sha256(tensors).hexdigest(),
            "values": dict(snapshot.values),
        }
        text = json.dumps({**record, "checksum": checksum_of(record)})
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_durably(self._tensors(round), tensors)
            write_durably(self._record(round), text.encode())
        except OSError as failed:
            with contextlib.suppress(OSError):
                self._tensors(round).unlink()
            raise EnvironmentFault(
                f"the checkpoint of round {round} cannot be written to {self._folder}: {failed.strerror}",
                hint="make room on the disk; the checkpoint before is kept",
                shared=f"the checkpoint of round {round} cannot be written: {failed.strerror}",
            ) from failed

    def prune(self, keep: Collection[int]) -> None:
        for path in self._records():
            if (round := _round_of(path)) not in keep:
                path.unlink(missing_ok=True)  # the record first: tensors without one are ignored
                self._tensors(round).unlink(missing_ok=True)

    def drop_after(self, round: int) -> None:
        """Removes the checkpoints of later rounds, which are repeated and may give other numbers.

        Otherwise a member that does not save such a round again would later restore the old one.
        """
        try:
            self.prune({kept for kept in self.rounds() if kept <= round})
        except OSError as failed:
            raise EnvironmentFault(
                f"checkpoints after round {round} cannot be removed from {self._folder}: {failed.strerror}",
                hint="make the folder writable",
            ) from failed

    def usable(self, owner: Owner | None = None) -> list[int]:
        """The rounds with complete checkpoints, newest first; warns of the others. Without `owner`, any is accepted."""
        rounds = []
        for path in self._records():
            try:
                record, _ = self._read(_round_of(path))
            except CheckpointError as torn:
                self._warn(str(torn))
                continue
            if owner is not None:
                self._refuse_others(record, owner)
            rounds.append(int(record["round"]))
        return sorted(rounds, reverse=True)

    def rounds(self) -> list[int]:
        """The rounds with a checkpoint, complete or not, newest first."""
        return sorted(map(_round_of, self._records()), reverse=True)

    def refuse_others(self, owner: Owner) -> None:
        """Refuses to continue from checkpoints of another owner, before anything is written.

        `owner.run` is "" if only the checkpoints name it.
        """
        if run := owner.run or self.run():
            self.usable(replace(owner, run=run))

    def of_model(self, owner: Owner, record: Path) -> list[int]:
        """The rounds whose checkpoints may serve as the run's model, newest first; none if there is no checkpoint.

        `record` is the member's, whose `model` names the best round if the run kept one; that checkpoint must be whole.
        """
        rounds, best = self.usable(owner), model_round(record)
        if not best:
            return rounds
        if best not in rounds:
            raise CheckpointError(
                f"{self._folder} holds no whole checkpoint of round {best}, whose model is the run's",
                hint="restore it from a copy of the folder, or run it again",
            )
        return [best]

    def run(self) -> str:
        """The run of the newest complete checkpoint, or "" if there is none."""
        rounds = self.usable()
        return str(self._read(rounds[0])[0].get("run", "")) if rounds else ""

    def config(self) -> Mapping[str, str]:
        """Hashes of the configuration of the newest complete checkpoint; empty if there is none."""
        rounds = self.usable()
        return dict(self._read(rounds[0])[0].get("config", {})) if rounds else {}

    def load(self, round: int, owner: Owner) -> Snapshot:
        record, tensors = self._read(round)
        self._refuse_others(record, owner)
        return Snapshot(safetensors.torch.load(tensors), record["values"])

    def _read(self, round: int) -> tuple[dict[str, Any], bytes]:
        path = self._record(round)
        try:
            record = parse_json(path.read_bytes())
            tensors = self._tensors(round).read_bytes()
            whole = record.pop("checksum") == checksum_of(record) and record["round"] == round and _is_record(record)
            whole = whole and hashlib.sha256(tensors).hexdigest() == record["tensors"]
            safetensors.torch.load(tensors)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
            whole = False
        if not whole:
            raise CheckpointError(
                f"the checkpoint {path} is torn or was altered",
                hint="the one before it is used if all members have that",
            )
        return record, tensors

    def _refuse_others(self, record: Mapping[str, Any], owner: Owner) -> None:
        where = f"the checkpoint {self._record(record['round'])}"
        if record["format"] != _FORMAT:
            raise CheckpointError(
                f"{where} has format {record['format']}, this version reads format {_FORMAT}",
                hint="resume it with the version that wrote it",
            )
        for key, ours in (("member", owner.member), ("run", owner.run)):
            if record[key] != ours:
                raise CheckpointError(
                    f"{where} is of {key} {record[key]!r}, not {ours!r}", hint="resume from this member's own folder"
                )
        theirs = record["config"]
        differing = sorted(
            key
            for key in {*theirs, *owner.config}
            if theirs.get(key) != owner.config.get(key) and not (key in _FREE and key not in owner.config)
        )
        if differing:
            raise CheckpointError(
                f"{where} was saved under another configuration: it differs in federation.{differing[0]}",
                hint=_AS_BEFORE,
            )
        own = record.get("own", {})  # no checkpoint of 0.2 has it
        if changed := sorted(key for key in {*own} & {*owner.own} if own[key] != owner.own[key]):
            raise CheckpointError(
                f"{where} was saved under another configuration: it differs in {changed[0]}", hint=_AS_BEFORE
            )

    def _records(self) -> list[Path]:
        found = sorted(self._folder.glob("round-*.json"))
        return [path for path in found if path.stem[6:].isdecimal() and path.stem.isascii()]

    def _record(self, round: int) -> Path:
        return self._folder / f"round-{round:08}.json"

    def _tensors(self, round: int) -> Path:
        return self._folder / f"round-{round:08}.safetensors"


class MemoryCheckpoints(Checkpoints):
    """Every checkpoint of one run, in memory: of a simulation without a folder."""

    def __init__(self, run: str, held: Mapping[int, Snapshot]) -> None:
        self._run, self.held = run, dict(held)

    def save(self, round: int, snapshot: Snapshot, _owner: Owner) -> None:
        self.held[round] = snapshot

    def prune(self, keep: Collection[int]) -> None:
        """Keeps all checkpoints."""

    def usable(self, _owner: Owner | None = None) -> list[int]:
        return sorted(self.held, reverse=True)

    def rounds(self) -> list[int]:
        return self.usable()

    def run(self) -> str:
        return self._run if self.held else ""

    def load(self, round: int, _owner: Owner) -> Snapshot:
        return self.held[round]


def model_round(record: Path) -> int:
    """The best round that a member's record of its run names; 0 where the newest checkpoint has the run's model."""
    try:
        return whole(unsealed(record.read_bytes()).get("model", 0))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, TypeError):
        raise CheckpointError(
            f"{record} is torn or was altered: it says which round's model is the run's",
            hint="restore it from a copy of the folder, or run it again",
        ) from None


def _refuse_not_finite(round: int, snapshot: Snapshot) -> None:
    for name, tensor in snapshot.tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"the checkpoint of round {round} would hold numbers that are not finite, in {name}",
                hint="training has diverged; the checkpoint before is kept",
                shared=f"the checkpoint of round {round} would hold numbers that are not finite",
            )


def _is_record(record: Mapping[str, Any]) -> bool:
    """True if the parts of a record have their types; a record of another format needs only its number."""
    if type(record["format"]) is not int or record["format"] != _FORMAT:
        return type(record["format"]) is int and isinstance(record.get("config", {}), dict)
    named = isinstance(record["member"], str) and isinstance(record["run"], str)
    hashes = [record["config"], record.get("own", {})]
    kept = all(isinstance(one, dict) and all(isinstance(value, str) for value in one.values()) for one in hashes)
    return named and kept and isinstance(record["values"], dict)


def _round_of(record: Path) -> int:
    return int(record.stem[6:])


def checksum_of(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
