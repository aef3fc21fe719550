"""What a half makes once in a run because it is costly, and keeps on its own disk, apart from checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from colonnade.common.errors import EnvironmentFault
from colonnade.common.runtime.durable import write_durably


class RunCache:
    """Tensors by name in a folder, each with a number that says which making of it this is.

    Args:
        folder: made with the first thing that is kept; None keeps things in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._held: dict[str, tuple[str, Mapping[str, Tensor]]] = {}

    def number(self, name: str) -> str:
        """Of what is kept under a name; "" if there is nothing, or it is torn or was altered."""
        if name not in self._held and self._folder is not None:
            self._read(name, self._folder)
        return self._held[name][0] if name in self._held else ""

    def get(self, name: str) -> Mapping[str, Tensor]:
        """What is kept under a name. Raises KeyError."""
        self.number(name)
        return self._held[name][1]

    def keep(self, name: str, number: str, tensors: Mapping[str, Tensor]) -> None:
        """Keeps tensors in the place of what was there; they are on the disk when this returns.

        Raises:
            EnvironmentFault: the disk refuses them.
        """
        if self._folder is None:
            self._held[name] = (number, dict(tensors))
            return
        self._held.pop(name, None)
        try:
            self._write(self._folder, name, number, tensors)
        except (OSError, SafetensorError) as failed:  # safetensors wraps what the disk says
            reason = failed.strerror if isinstance(failed, OSError) else str(failed)
            raise EnvironmentFault(
                f"{name} cannot be kept in {self._folder}: {reason}",
                hint="choose another --out, or make room",
            ) from failed
        self._read(name, self._folder)  # from the file: pages that are not needed may leave the memory

    def _write(self, folder: Path, name: str, number: str, tensors: Mapping[str, Tensor]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").unlink(missing_ok=True)  # the record goes first and comes last
        beside = folder / f"{name}.partial"
        safetensors.torch.save_file(dict(tensors), beside)
        checksum = _checksum(beside, number)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(folder / f"{name}.safetensors")
        write_durably(folder / f"{name}.json", json.dumps({"number": number, "sha256": checksum}).encode())

    def _read(self, name: str, folder: Path) -> None:
        try:
            record = json.loads((folder / f"{name}.json").read_text())
            path, number = folder / f"{name}.safetensors", str(record["number"])
            if _checksum(path, number) == record["sha256"]:
                self._held[name] = (number, safetensors.torch.load_file(path))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            pass  # made again


def _checksum(path: Path, number: str) -> str:
    """Of the file and the number that it was kept under."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(number.encode())
    return digest.hexdigest()
