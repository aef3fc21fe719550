"""The owner of a member's checkpoints: hashes of what the run's numbers depend on, which the checkpoints keep.

Beside the agreed section these are keys of the member's own: a member that resumed or predicted with another model, or
after the file of its model was edited, would put trained parameters into other code. Learning rates are free, since a
run that diverged goes on with smaller ones (docs/training.md). Tables are compared by their content, wherever they lie
(common/data/columns/kept_encoder.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ActiveConfig, PartyConfig, ServerConfig
from colonnade.common.config.models import OwnConfig, PretrainedConfig, UserModule
from colonnade.common.run.checkpoints import Owner

_MODELS = ("model", "head")
_STEPS = ("optimiser", "head_optimiser", "class_weights", "monotone", "special", "cuts")
_RATE, _PATHS = "lr", ("file", "weights")


def owner_of(
    federation: FederationConfig,
    member: str,
    own: ServerConfig | PartyConfig | None,
    base: Path,
    run: str = "",
    *,
    trains: bool = False,
) -> Owner:
    """The owner of a member's checkpoints.

    Args:
        own: the member's own section; None compares the agreed one alone.
        base: folder that paths of the section are relative to.
        run: the run's number; "" if only the checkpoints name it.
        trains: whether to include what training alone depends on, such as optimisers.
    """
    return Owner(member, run, federation.lasting_hashes(), {} if own is None else _own(member, own, base, trains))


def _own(member: str, own: ServerConfig | PartyConfig, base: Path, trains: bool) -> dict[str, str]:
    """SHA-256 by dotted key, in hex; "the content of KEY" is of the files that KEY names."""
    keys = (*_MODELS, *(_STEPS if trains else ()))
    sections: dict[str, PartyConfig | ServerConfig | ActiveConfig] = {"server": own}
    if isinstance(own, PartyConfig):
        sections = {f"parties.{member}": own}
    elif own.active is not None:
        sections["server.active"] = own.active
    found = dict[str, str]()
    for at, section in sections.items():
        found |= dict(_hashes(at, section, base, keys))
        if not isinstance(section, ServerConfig):
            noise = getattr(section.data, "noise", None)
            found[f"{at}.data.noise"] = _hash(noise and noise.model_dump(mode="json"))
    return found


def _hashes(at: str, section: BaseModel, base: Path, keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for key in keys:
        value = getattr(section, key, None)
        if not isinstance(value, BaseModel):
            if key in type(section).model_fields:
                yield f"{at}.{key}", _hash(value)
            continue
        arguments = value.model_extra if isinstance(value, UserModule) else None
        for name, one in value.model_dump(mode="json", exclude=set(arguments or ())).items():
            if name != _RATE and name not in _PATHS:
                yield f"{at}.{key}.{name}", _hash(one)
        if arguments is not None:  # as a whole: each may be given or left out
            yield f"the arguments of {at}.{key}", _hash(arguments)
        if isinstance(value, OwnConfig):
            path, _, name = value.file.rpartition(":")
            yield f"{at}.{key}.file", _hash(name)
            yield from _content(f"{at}.{key}.file", base / Path(path).expanduser())
        if isinstance(value, PretrainedConfig):
            yield from _content(f"{at}.{key}.weights", base / Path(value.weights).expanduser())


def _content(key: str, path: Path) -> Iterator[tuple[str, str]]:
    """None of a file that cannot be read: it is refused where it is used."""
    digest = hashlib.sha256()
    try:
        for one in sorted(path.iterdir()) if path.is_dir() else [path]:
            if one.is_file() or one == path:
                with one.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError:
        return
    yield f"the content of {key}", digest.hexdigest()


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
