"""A tensor on a member's disk that a run depends on, with a record of its settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from colonnade.common.errors import CheckpointError
from colonnade.common.run.files import write_kept

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
    record = {**about, "checksum": checksum_of(values, about)}
    write_kept(path, safetensors.torch.save({_NAME: values.contiguous()}, record), 0o600, in_new=True)


def read_recorded(path: Path, hint: str = ANEW) -> tuple[Tensor, dict[str, str]]:
    """Reads a tensor and its record. Raises CheckpointError if it is damaged."""
    try:
        with safe_open(path, "pt") as file:
            found, values = dict(file.metadata() or {}), file.get_tensor(_NAME)
        whole = found.pop("checksum") == checksum_of(values, found)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        whole = False
    if not whole:
        raise CheckpointError(f"{path} is torn or was altered", hint=hint)
    return values, found


def checksum_of(values: Tensor, about: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode())
    digest.update(np.ascontiguousarray(values.numpy()).tobytes())
    return digest.hexdigest()
