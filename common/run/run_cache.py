"""Results that a member computes once per run, on its own disk, apart from checkpoints.

`keep` stores results that can be recomputed: a damaged entry is ignored. `keep_record` stores those that cannot, such
as the sets of parties that were summed: a damaged one is refused.

A single tensor that a run depends on, with a record of its settings, has functions of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from colonnade.common.errors import CheckpointError, EnvironmentFault, disk_faults
from colonnade.common.run.files import sync, write_durably, write_kept
from colonnade.common.run.json_text import parse_json


class RunCache:
    """Tensors by name in a folder, each with a number that identifies the computation; without a folder, in memory."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: dict[str, tuple[str, Mapping[str, Tensor]]] = {}

    def number(self, name: str) -> str:
        """Number of the entry under a name; "" if there is none, or it is damaged or was altered."""
        if name not in self._held and self._folder is not None:
            self._read(name, self._folder)
        return self._held[name][0] if name in self._held else ""

    def get(self, name: str) -> Mapping[str, Tensor]:
        self.number(name)
        return self._held[name][1]

    def keep(self, name: str, number: str, tensors: Mapping[str, Tensor]) -> None:
        """Stores tensors, replacing an earlier entry; they are on the disk when this returns."""
        if self._folder is None:
            self._held[name] = (number, dict(tensors))
            return
        self._held.pop(name, None)
        try:
            self._write(self._folder, name, number, tensors)
        except (OSError, SafetensorError) as failed:  # safetensors wraps errors of the disk
            reason = failed.strerror if isinstance(failed, OSError) else str(failed)
            raise EnvironmentFault(
                f"{name} cannot be kept in {self._folder}: {reason}",
                hint="choose another --out, or make room",
            ) from failed
        self._read(name, self._folder)  # mapped from the file, so that unused pages may leave memory

    def forget(self, name: str) -> None:
        self._held.pop(name, None)
        if self._folder is not None:
            with disk_faults(f"{name} cannot be removed from {self._folder}", "make the folder writable"):
                (self._folder / f"{name}.json").unlink(missing_ok=True)

    def keep_record(self, name: str, number: str, tensors: Mapping[str, Tensor]) -> None:
        """Stores an entry that cannot be recomputed, atomically in one file; it is on the disk when this returns.

        If the disk refuses it (EnvironmentFault), the previous entry stays.
        """
        if self._folder is not None:
            own = {key: tensor.contiguous() for key, tensor in tensors.items()}
            about = {"number": number, "checksum": sum_of(number, own)}
            write_kept(self._folder / f"{name}.record", safetensors.torch.save(own, about), 0o600, in_new=True)
        self._held[name] = (number, dict(tensors))

    def record(self, name: str) -> tuple[str, Mapping[str, Tensor]] | None:
        """Number and tensors of an entry that cannot be recomputed; None if nothing was ever stored under the name.

        Also finds entries that versions before 0.3 stored by `keep`.
        """
        if name in self._held or self._folder is None:
            return self._held.get(name)
        path = self._folder / f"{name}.record"
        if path.exists():
            self._held[name] = _read_record(path)
        elif (self._folder / f"{name}.json").exists() or (self._folder / f"{name}.safetensors").exists():
            self._read(name, self._folder)
            if name not in self._held:
                raise _damaged(self._folder / f"{name}.json")
        return self._held.get(name)

    def _write(self, folder: Path, name: str, number: str, tensors: Mapping[str, Tensor]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").unlink(missing_ok=True)  # the record is removed first and written last
        draft = folder / f"{name}.partial"
        draft.unlink(missing_ok=True)  # it may be a link
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        safetensors.torch.save_file(dict(tensors), draft)
        checksum = checksum_of(draft, number)
        with draft.open("rb") as file:
            sync(file.fileno())
        draft.replace(folder / f"{name}.safetensors")
        write_durably(folder / f"{name}.json", json.dumps({"number": number, "sha256": checksum}).encode())

    def _read(self, name: str, folder: Path) -> None:
        try:
            record = parse_json((folder / f"{name}.json").read_bytes())
            path, number = folder / f"{name}.safetensors", str(record["number"])
            if checksum_of(path, number) == record["sha256"]:
                self._held[name] = (number, safetensors.torch.load_file(path))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            pass  # computed again


def _read_record(path: Path) -> tuple[str, Mapping[str, Tensor]]:
    try:
        with safetensors.safe_open(path, "pt") as file:
            about = dict(file.metadata() or {})
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # no mapping
        whole = about["checksum"] == sum_of(about["number"], tensors)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        whole = False
    if not whole:
        raise _damaged(path)
    return about["number"], tensors


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is torn or was altered, and cannot be computed again",
        hint="restore it from a copy, or begin a new run in another folder",
    )


def sum_of(number: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(number.encode())
    for key, tensor in sorted(tensors.items()):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def checksum_of(path: Path, number: str) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(number.encode())
    return digest.hexdigest()


ANEW = "restore it from a copy, or begin a new run, which spends epsilon anew"

_NAME = "values"


def read_any(path: Path) -> Tensor:
    """Reads a tensor regardless of its record. Raises CheckpointError if it is damaged."""
    return read_recorded(path)[0]


def read_tensor(path: Path, about: Mapping[str, str]) -> Tensor:
    """Reads a tensor. Raises CheckpointError if it is damaged, or its record is not `about`."""
    restored, found = read_recorded(path)
    if found != about:
        hint = "restore epsilon, the number of codes and the rows, or begin a new run, which spends epsilon anew"
        raise CheckpointError(f"{path} was drawn with other settings", hint=hint)
    return restored


def write_tensor(path: Path, values: Tensor, about: Mapping[str, str]) -> None:
    """Writes a tensor, durably and readable by its owner alone. Raises EnvironmentFault."""
    record = {**about, "checksum": tensor_checksum(values, about)}
    write_kept(path, safetensors.torch.save({_NAME: values.contiguous()}, record), 0o600, in_new=True)


def read_recorded(path: Path, hint: str = ANEW) -> tuple[Tensor, dict[str, str]]:
    """Reads a tensor and its record. Raises CheckpointError if it is damaged."""
    try:
        with safe_open(path, "pt") as file:
            found, values = dict(file.metadata() or {}), file.get_tensor(_NAME)
        whole = found.pop("checksum") == tensor_checksum(values, found)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        whole = False
    if not whole:
        raise CheckpointError(f"{path} is torn or was altered", hint=hint)
    return values, found


def tensor_checksum(values: Tensor, about: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    digest.update(np.ascontiguousarray(values.numpy()).tobytes())
    return digest.hexdigest()
