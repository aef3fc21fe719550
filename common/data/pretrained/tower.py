"""A tower with weights made elsewhere (common/config/models.py), opened: its module, and how a cell is read for it.

Weights are files of this machine in the form of safetensors, which holds no code. Nothing is downloaded.
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
    """A tower as it was found on the disk.

    Args:
        module: (rows, *shape) -> float32 (rows, width); numbers of pixels or of tokens, of any dtype.
        shape: of a row, as a model that is trained takes it. Of tokens -1 fills up.
        read: what the module takes of a cell's content, (*shape) or fewer tokens. Raises Unreadable.
        digest: changes with the weights, with what `read` makes of a cell, and with the versions of the libraries.
    """

    module: nn.Module
    width: int
    shape: Shape
    read: Callable[[bytes], Tensor]
    digest: str


class Unreadable(Exception):  # the reader of the table catches it and says where
    """A cell's content is not what the tower reads."""


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Raises ConfigError: it is no safetensors file."""
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
    """Gives a module these weights. Raises ConfigError: they are another architecture's.

    Args:
        surplus: beginnings of names that the weights may have beyond the module's, such as a classifier's.
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
    """In evaluation mode, without gradients."""
    return module.eval().requires_grad_(requires_grad=False)


def digest_of(files: Sequence[Path], **read: object) -> str:
    """Digest of weights, of how cells are read for them, and of the versions."""
    said = {**read, "torch": str(torch.__version__), "colonnade": VERSION}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode())
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
