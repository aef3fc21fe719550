"""Files of an exported part of a model."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
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
NO_NETWORK = "--onnx: a part of a forest, or of scores by column, is no network"
_WEIGHTS, _PROGRAM, ONNX = "model.safetensors", "model.pt2", "model.onnx"


def programs_of(model: nn.Module, example: Tensor, rows: int = 0, *, onnx: bool = False) -> dict[str, bytes]:
    """Traces programs for any number of rows, by name of their file; refuses models that cannot be traced.

    Args:
        model: in evaluation mode.
        example: input of `TRACED` rows.
        rows: axis of the rows.
        onnx: adds one for ONNX run times.
    """
    if onnx and find_spec("onnxscript") is None:
        raise InputError("--onnx needs onnxscript, which is not installed", hint="pip install 'colonnade[onnx]'")
    try:
        made = torch.export.export(model, (example,), dynamic_shapes=({rows: torch.export.Dim("rows")},))
        program = io.BytesIO()
        torch.export.save(made, program)
        programs = {_PROGRAM: program.getvalue()}
        if onnx:
            programs[ONNX] = _translated(made)
    except Exception as failed:  # a user's model may raise anything when traced
        reason = str(failed).splitlines()[0]
        raise InputError(
            f"the model cannot be exported as a program: {reason}",
            hint="its parameters are in the newest of the member's checkpoints, a safetensors file",
        ) from failed
    return programs


def _translated(program: torch.export.ExportedProgram) -> bytes:
    teller = logging.getLogger("torch.onnx")
    level = teller.level
    teller.setLevel(logging.ERROR)  # it misses torchvision, which no model here has
    try:
        with warnings.catch_warnings(action="ignore"):
            made = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=["input"], output_names=["output"]
            )
    finally:
        teller.setLevel(level)
    assert made is not None
    return bytes(made.model_proto.SerializeToString())


def write_part(
    into: Path, model: nn.Module, programs: Mapping[str, bytes], record: Mapping[str, Any], more: Mapping[str, bytes]
) -> None:
    """Writes weights, programs, further files (`more`, by name), and model.json with the hashes of all."""
    make_folder(into)
    weights = safetensors.torch.save({name: value.contiguous() for name, value in model.state_dict().items()})
    files = {_WEIGHTS: weights, **programs, **more}
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
