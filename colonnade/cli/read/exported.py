"""Files of an exported part of a model."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.run.durable import write_durably
from colonnade.reports.console.outputs import make_folder

TRACED = 7
"""Rows of the example that a program is made from: a number that nothing else is likely to have."""

RECORD = "model.json"
_WEIGHTS, _PROGRAM = "model.safetensors", "model.pt2"


def program_of(model: nn.Module, example: Tensor, rows: int = 0) -> bytes:
    """Traces a torch.export program for any number of rows; refuses models that cannot be traced.

    Args:
        model: in evaluation mode.
        example: input of `TRACED` rows.
        rows: axis of the rows.
    """
    try:
        made = torch.export.export(model, (example,), dynamic_shapes=({rows: torch.export.Dim("rows")},))
        program = io.BytesIO()
        torch.export.save(made, program)
    except Exception as failed:  # a user's model may raise anything when traced
        reason = str(failed).splitlines()[0]
        raise InputError(
            f"the model cannot be exported as a program: {reason}",
            hint="its parameters are in the newest of the member's checkpoints, a safetensors file",
        ) from failed
    return program.getvalue()


def write_part(
    into: Path, model: nn.Module, program: bytes, record: Mapping[str, Any], more: Mapping[str, bytes]
) -> None:
    """Writes weights, program, further files (`more`, by name), and model.json with the hashes of all."""
    make_folder(into)
    weights = safetensors.torch.save({name: value.contiguous() for name, value in model.state_dict().items()})
    files = {_WEIGHTS: weights, _PROGRAM: program, **more}
    for name, content in files.items():
        _write(into / name, content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    write_json(into / RECORD, {**record, "sha256": hashes})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    make_folder(path.parent)
    _write(path, (json.dumps(content, indent=2) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    try:
        write_durably(path, content, mode=0o600)  # a model leaks information on its training rows
    except OSError as failed:
        raise EnvironmentFault(f"{path} cannot be written: {failed.strerror}", hint="choose another --out") from None
