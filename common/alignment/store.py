"""A member's kept alignments, on its own disk, outside any run.

    FOLDER/                        0700
    FOLDER/alignments.salt         random; key of every digest here
    FOLDER/ROSTER/                 one roster: its id, names, pins, kind and comparison of keys
        exponent.json              the member's secret exponent for this roster, and when it was drawn
        SLOT.alignment             an alignment of one table of this member under one policy
        raised                     elements raised to the exponent (common/alignment/exponent.py)
        raised.RANDOM.journal      those of an alignment that runs, or whose process was killed

Files are 0600 and written atomically. A file that is torn, altered, too old or of a newer format is ignored: rows are
then aligned anew.

The alignment of a run itself is kept in the run's cache: the rows that the member uses, in order.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from colonnade.common.alignment.exponent import RaisedElements, journals_of
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.place import make_private
from colonnade.common.config.federation import FederationConfig
from colonnade.common.crypto.group import ELEMENT
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import CheckpointError, DataError
from colonnade.common.messaging.raw import to_bytes, to_tensor
from colonnade.common.run.files import write_kept
from colonnade.common.run.json_text import is_number, parse_json
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import MemberFolder, read_record

FORMAT = 1

_DAY = 86400.0
_SALT = 32
_ROSTER = 16  # digits of a roster's folder
_SALT_FILE = "alignments.salt"
_SUFFIX = ".alignment"
_EXPONENT = "exponent.json"
_RAISED = "raised"


@dataclass(frozen=True)
class KeptAlignment:
    """An alignment that this member holds.

    Args:
        rows: the member's rows in the common order, int64 (common,).
        commitments: hexadecimal digest of every member's list, by name, taken before the first was sent
            (common/alignment/checks.py); empty if lists were not checked.
    """

    identity: str
    rows: Tensor
    commitments: Mapping[str, str] = field(default_factory=dict)


class AlignmentStore:
    """The kept alignments of one member with one roster.

    Args:
        roster: `roster_digest` of the agreed section.
        days: age at which an alignment and an exponent are removed.
    """

    def __init__(self, folder: Path, roster: bytes, days: float, now: Callable[[], float] = time.time) -> None:
        self._folder, self.roster, self._days, self._now = folder, roster, days, now
        self._home = folder / hashlib.sha256(roster).hexdigest()[:_ROSTER]

    def held(self, keys: RowKeys, policy: bytes) -> KeptAlignment | None:
        """The alignment of these keys, as they are now, under this policy (a digest); None if there is none."""
        self.prune()
        path = self._path(keys, policy)
        if path is None or (read := read_kept(path)) is None:
            return None
        record, tensors = read
        if record["keys"] != self._digest(keys, policy).hex() or record["roster"] != self.roster.hex():
            return None
        return KeptAlignment(record["identity"], tensors["rows"], record["commitments"])

    def keep(self, keys: RowKeys, policy: bytes, found: KeptAlignment) -> None:
        """Stores an alignment; it is on the disk when this returns."""
        self._prepare()
        record = {
            "format": FORMAT,
            "identity": found.identity,
            "roster": self.roster.hex(),
            "keys": self._digest(keys, policy).hex(),
            "made": self._now(),
            "commitments": dict(found.commitments),
        }
        path = self._path(keys, policy)
        assert path is not None  # the salt is there now
        write_kept(path, _content(record, found.rows), 0o600)

    def exponent(self) -> bytes:
        """The member's secret for this roster, 32 bytes; drawn anew when it is too old."""
        self.prune()
        self._prepare()
        path = self._home / _EXPONENT
        with contextlib.suppress(KeyError, TypeError, ValueError):
            kept = read_record(path) or {}
            secret = bytes.fromhex(kept["exponent"])
            if kept["format"] == FORMAT and len(secret) == ELEMENT:
                return secret
        _remove_raised(self._home / _RAISED)
        drawn = os.urandom(ELEMENT)
        content = {"format": FORMAT, "exponent": drawn.hex(), "made": self._now()}
        write_kept(path, json.dumps(content).encode(), 0o600)
        return drawn

    def raised(self, exponent: bytes) -> RaisedElements:
        """The elements raised to this exponent; another process may have replaced the stored exponent since."""
        return RaisedElements(self._home / _RAISED, self._salted(exponent))

    def prune(self) -> None:
        for path in self._folder.glob("*/*"):
            made = made_at(path)
            if made is not None and not 0 <= self._now() - made < self._days * _DAY:
                path.unlink(missing_ok=True)
                if path.name == _EXPONENT:
                    _remove_raised(path.with_name(_RAISED))

    def _prepare(self) -> None:
        for folder in (self._folder, self._home):
            make_private(folder)
        if len(self._salt()) != _SALT:
            write_kept(self._folder / _SALT_FILE, os.urandom(_SALT), 0o600)

    def _salt(self) -> bytes:
        path = self._folder / _SALT_FILE
        return path.read_bytes() if path.is_file() else b""

    def _digest(self, keys: RowKeys, policy: bytes) -> bytes:
        return self._salted(keys.digest + policy + self.roster)

    def _salted(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self._salt(), digest_size=32).digest()

    def _path(self, keys: RowKeys, policy: bytes) -> Path | None:
        if len(self._salt()) != _SALT:
            return None
        return self._home / (self._digest(keys, policy).hex()[:32] + _SUFFIX)


def _remove_raised(path: Path) -> None:
    for one in (path, *journals_of(path)):
        one.unlink(missing_ok=True)


def members_in(folder: Path) -> list[Path]:
    """The folders of members that keep something in a folder; links are left out."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    return [member for member in found if not member.is_symlink() and (member / _SALT_FILE).is_file()]


def forget(folder: Path) -> int:
    """Removes and counts all kept alignments and exponents below a folder of members; unrelated files stay."""
    removed = 0
    for member in members_in(folder):
        for roster in filter(_is_roster, member.iterdir()):
            removed += sum(made_at(path) is not None for path in roster.iterdir())
            shutil.rmtree(roster)
        for salt in member.glob(_SALT_FILE + "*"):
            salt.unlink()
        _remove_empty(member)
    _remove_empty(folder)
    return removed


def _is_roster(folder: Path) -> bool:
    return len(folder.name) == _ROSTER and not set(folder.name) - set("0123456789abcdef") and not folder.is_symlink()


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it holds something else
        folder.rmdir()


def _content(record: dict[str, Any], rows: Tensor) -> bytes:
    text = json.dumps(record)
    rows = rows.to(torch.int64).contiguous()
    checksum = hashlib.sha256(text.encode() + to_bytes(rows)).digest()
    return safetensors.torch.save({"rows": rows, "checksum": to_tensor(checksum)}, {"record": text})


def read_kept(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Record and rows of an intact file of our format, else None."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            text, tensors = file.metadata()["record"], {name: file.get_tensor(name) for name in ("rows", "checksum")}
        record = parse_json(text)
        whole = hashlib.sha256(text.encode() + to_bytes(tensors["rows"])).digest() == to_bytes(tensors["checksum"])
        rows = tensors["rows"]
        named = all(isinstance(record[name], str) for name in ("identity", "roster", "keys"))
        promised = all(isinstance(one, str) for one in record["commitments"].values())
        if (
            not whole
            or not named
            or not promised
            or record["format"] != FORMAT
            or rows.dtype != torch.int64
            or rows.ndim != 1
        ):
            return None
        return record, tensors
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
        return None


def made_at(path: Path) -> float | None:
    """Time at which an alignment or an exponent was made; None for other files, 0 for a torn one."""
    if path.name == _EXPONENT:
        record = read_record(path) or {}
    elif path.suffix == _SUFFIX:
        try:
            with safetensors.safe_open(path, "pt") as file:
                record = parse_json(file.metadata()["record"])
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            record = {}
    else:
        return None
    made = record.get("made") if isinstance(record, dict) else None
    return float(made) if is_number(made) else 0.0


_VERSION = 1


def roster_digest(federation: FederationConfig, *, pinned: bool) -> bytes:
    """32 bytes that change with the federation's id, a member, a fingerprint, and how keys are compared and checked.

    Args:
        federation: the agreed section, with the whole roster.
        pinned: False where fingerprints belong to keys made for one start, so that they identify no member.
    """
    checks = [] if federation.align_checks == "none" else [federation.align_checks]  # as in versions without checks
    pins = [[name, pin if pinned else ""] for name, pin in federation.parties.items()]
    server = federation.server if pinned else ""
    content = [
        _VERSION,
        federation.id,
        federation.align,
        federation.keys.model_dump(mode="json", exclude={"parts"} if federation.keys.parts == 1 else None),  # likewise
        server,
        pins,
        *checks,
    ]
    return hashlib.sha256(json.dumps(content).encode()).digest()


def identity_of(roster: bytes, nonces: Sequence[bytes], common: int, commitments: Mapping[str, str]) -> str:
    """The identity of one alignment, 64 hexadecimal digits.

    It contains a nonce of every member, so no member can choose it or reproduce an earlier one. It depends on no key,
    so keys cannot be tested against it.

    Args:
        nonces: the server's first, then the parties' in the roster's order.
        commitments: digest of every member's list, by name; empty if lists were not checked. Members that were shown
            different ones compute different identities, and cannot reuse the alignment.
    """
    content = [
        _VERSION,
        roster.hex(),
        [nonce.hex() for nonce in nonces],
        common,
        *([dict(commitments)] if commitments else []),
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def statement(
    session: Session, federation: FederationConfig, party: str, identity: str, nonces: Sequence[bytes]
) -> bytes:
    """The signed content with which a party states, in a session of these members, that it holds an alignment.

    Every verifier draws one of the nonces for this agreement, so a statement from another agreement (even with the same
    session number) or for other members is invalid.

    Args:
        federation: the agreed section, with the present parties and their fingerprints.
        nonces: the server's first, then the parties' in the roster's order.
    """
    members = {"server": federation.server, **federation.parties}
    seats = [[name, pin, nonce.hex()] for (name, pin), nonce in zip(members.items(), nonces, strict=True)]
    return session.transcript("kept alignment", party, identity, json.dumps(seats))


_NAME = "alignment"
_BYTES = ("identity", "terms", "keys")


@dataclass(frozen=True)
class AlignmentRecord:
    """The row numbers of an alignment, stored under its number, which the server draws; `keys` are the current ones."""

    run_cache: RunCache
    keys: RowKeys
    member: str

    @property
    def number(self) -> str:
        """Number of the stored alignment; "" if there is none."""
        return self.run_cache.number(_NAME)

    def keep(self, number: str, rows: Tensor, identity: str = "", terms: bytes = b"") -> None:
        """Stores row numbers, int64 (common,), replacing earlier ones; they are on the disk when this returns.

        Args:
            identity: the alignment's, for predictions with the run's model; "" for none.
            terms: digest of the roster and the member's own rules under which the alignment is valid.
        """
        content = {"rows": rows.to(torch.int64), "keys": to_tensor(self.keys.digest)}
        if identity:
            content |= {"identity": to_tensor(identity.encode()), "terms": to_tensor(terms)}
        self.run_cache.keep(_NAME, number, content)

    def kept(self, terms: bytes) -> KeptAlignment | None:
        """The stored alignment, if it has an identity and is valid under these terms for the current keys."""
        if not self.number or not _is_run_content(content := self.run_cache.get(_NAME)):
            return None
        there = {name: to_bytes(content[name]) for name in _BYTES if name in content}
        if there.get("terms") != terms or there.get("keys") != self.keys.digest or not there.get("identity"):
            return None
        return KeptAlignment(there["identity"].decode(errors="replace"), content["rows"])

    @property
    def outdated(self) -> bool:
        """True if an alignment of other keys is stored here."""
        return bool(self.number) and to_bytes(_run_content(self.run_cache, self.member)["keys"]) != self.keys.digest

    def forget(self) -> None:
        self.run_cache.forget(_NAME)

    def rows(self, number: str) -> Tensor:
        """The stored row numbers, int64 (common,), of the current alignment's `number`.

        Raises:
            CheckpointError: another alignment is stored here, or none.
            DataError: the table's keys have changed since.
        """
        if self.number != number:
            raise CheckpointError(
                f"{self.member}: the run goes on with the alignment {number}, and here is {self.number or 'none'}",
                hint="resume every member from its own folder of this run, or begin a new run",
            )
        return self.checked(_run_content(self.run_cache, self.member))

    def checked(self, kept: Mapping[str, Tensor]) -> Tensor:
        """The row numbers of a stored alignment. Raises DataError if the table's keys have changed since."""
        if to_bytes(kept["keys"]) != self.keys.digest:
            raise DataError(
                f"{self.member}: the keys of its table, or their order, have changed since rows were aligned",
                hint="restore the table, or begin a new run",
                shared="the keys of its table, or their order, have changed since rows were aligned",
            )
        return kept["rows"]


def kept_rows(run_cache: RunCache, member: str) -> Tensor:
    """The row numbers of a finished run, int64 (common,). Raises CheckpointError if they are missing."""
    return _finished(run_cache, member)["rows"]


def rows_of_run(
    federation: FederationConfig, home: MemberFolder, ids: Sequence[str] | None, member: str
) -> Tensor | None:
    """The rows of a member's table that a finished run was trained on, int64 (common,); None for all, in their order.

    Args:
        ids: the table's keys today.

    Raises CheckpointError if row numbers are missing, DataError if the keys differ from training's.
    """
    if federation.align == "none":
        return None
    cache = RunCache(home.run_cache)
    kept = _finished(cache, member)
    return AlignmentRecord(cache, RowKeys.of(ids, federation.keys, member, home.path), member).checked(kept)


def _finished(run_cache: RunCache, member: str) -> Mapping[str, Tensor]:
    if not run_cache.number(_NAME):
        raise CheckpointError(f"{member}: there is no alignment of this run", hint="give a complete run folder")
    return _run_content(run_cache, member)


def _run_content(run_cache: RunCache, member: str) -> Mapping[str, Tensor]:
    content = run_cache.get(_NAME)
    if not _is_run_content(content):
        raise CheckpointError(f"{member}: its alignment of this run was altered", hint="begin a new run")
    return content


def _is_run_content(content: Mapping[str, Tensor]) -> bool:
    if not {"rows", "keys"} <= content.keys() or content["rows"].dtype != torch.int64 or content["rows"].ndim != 1:
        return False
    return all(content[name].dtype == torch.uint8 and content[name].ndim == 1 for name in _BYTES if name in content)
