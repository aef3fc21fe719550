"""A run that was begun under other defaults goes on under them.

Where nothing was said, version 0.1.0 counted by Renyi's bound, took a party that is absent for the neighbour, and
masked no answers of FedVS. What such a run keeps says so: its checkpoints lack the hash of `accounting`, and have
those of the other `adjacency` and `masked_answers`. A configuration that names a key is taken at its word.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from colonnade.common.checkpointing.checkpoints import Checkpoints
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import Config
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.yaml_tree import read_tree
from colonnade.common.privacy.settings import BEFORE
from colonnade.common.runtime.run_folder import MemberFolder

_DEFAULTS = (*(("privacy", key, value) for key, value in BEFORE.items()), ("protocol", "masked_answers", False))


def load_begun(path: Path, overrides: tuple[str, ...] = ()) -> Config:
    """Reads the configuration that a run has left in its folder: whole, but for keys that are newer than the run.

    Raises:
        ConfigError: as `load`.
    """
    return parse(with_defaults_before(read_tree(path)), overrides)


def with_defaults_before(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The same tree, whose privacy sections name what they did not have to when the run was begun."""
    made = copy.deepcopy(dict(tree))
    agreed = _below(made, "federation", "privacy")
    answers = _below(made, "server", "privacy", "answers")
    if agreed is not None:
        agreed.setdefault("accounting", BEFORE["accounting"])
        if agreed.get("mechanism", "gaussian") == "gaussian":
            agreed.setdefault("adjacency", BEFORE["adjacency"])
    if answers is not None:
        answers.setdefault("accounting", BEFORE["accounting"])
    return made


def as_begun(config: Config, folder: Path) -> Config:
    """A member's own configuration, with the defaults of the run that its folder holds; the same where it holds none.

    Args:
        config: as its file says.
        folder: the member's, in which checkpoints lie.
    """
    federation, held = config.federation, Checkpoints(MemberFolder(folder).checkpoints).config()
    if not held:
        return config
    for section, key, before in _DEFAULTS:
        found: BaseModel | None = getattr(federation, section)
        if found is None or key not in type(found).model_fields or key in found.model_fields_set:
            continue
        other = federation.model_copy(update={section: found.model_copy(update={key: before})})
        if _fits(held, other, f"{section}.{key}"):
            federation = other
    return config.model_copy(update={"federation": federation})


def _fits(held: Mapping[str, str], federation: FederationConfig, key: str) -> bool:
    """Whether the run was saved under this value: its hash, of which older checkpoints have the beginning, is there."""
    ours, theirs = federation.lasting_hashes().get(key), held.get(key)
    return ours is theirs is None or (ours is not None and theirs is not None and ours.startswith(theirs))


def _below(tree: dict[str, Any], *keys: str) -> dict[str, Any] | None:
    node: Any = tree
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else None
