"""A pretrained tower (common/config/models.py), opened: its module, and how it reads a cell.

Weights are local safetensors files, which hold no code. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from colonnade.common.config.data.columns import Shape
from colonnade.common.errors import ConfigError
from colonnade.common.version import VERSION

WEIGHTS = ".safetensors"
_NAMED = 4  # parameters in a message


@dataclass(frozen=True)
class PretrainedTower:
    """A tower read from the disk.

    Args:
        module: (rows, *shape) -> float32 (rows, width); pixel or token numbers, of any dtype.
        shape: a row's, for training; tokens are padded by -1.
        read: converts a cell's content to the module's input, (*shape) or fewer tokens. Raises Unreadable.
        digest: changes with the weights, with `read`'s result, and with the versions of the libraries.
    """

    module: nn.Module
    width: int
    shape: Shape
    read: Callable[[bytes], Tensor]
    digest: str


class Unreadable(Exception):  # the reader of the table catches it and says where
    """The tower cannot read a cell's content."""


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Raises ConfigError if the file is not safetensors."""
    if path.suffix != WEIGHTS:
        raise ConfigError(
            f"{path} is no {WEIGHTS} file: other forms of weights may hold code, and are not read",
            hint="write it anew where you trust it: `safetensors.torch.save_file(torch.load(FILE, weights_only=True), "
            f"'weights{WEIGHTS}')`",
        )
    try:
        return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path}", hint="the path is relative to the configuration's folder"
        ) from None
    except (OSError, SafetensorError) as wrong:
        raise ConfigError(f"{path} cannot be read: {wrong}", hint="fetch the weights again") from None


def fill(module: nn.Module, weights: Mapping[str, Tensor], path: Path, surplus: Sequence[str] = ()) -> None:
    """Loads weights into a module. Raises ConfigError if they belong to another architecture.

    Args:
        surplus: name prefixes of weights that the module may lack, such as a classifier's.
    """
    own = module.state_dict()
    unknown = [name for name in weights if name not in own and not name.startswith(tuple(surplus))]
    lacking = [name for name in own if name not in weights]
    other = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    for names, said in ((lacking, "lacks"), (other, "has another shape of"), (unknown, "has, beyond the tower's,")):
        if names:
            more = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
            raise ConfigError(
                f"{path} {said} {', '.join(names[:_NAMED])}{more}",
                hint="name the architecture that these weights are of, or its own weights",
            )
    module.load_state_dict({name: weights[name] for name in own})


def frozen(module: nn.Module) -> nn.Module:
    """The module in evaluation mode, without gradients."""
    return module.eval().requires_grad_(requires_grad=False)


def digest_of(files: Sequence[Path], **read: object) -> str:
    """Digest of weights, cell reading and versions."""
    said = {**read, "torch": str(torch.__version__), "colonnade": VERSION}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode())
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
