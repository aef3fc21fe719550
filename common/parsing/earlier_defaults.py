"""Runs that 0.2.0 began resume under its defaults.

It had other constants of VIMADMM, linear ADMM and FedVS. Such a run is recognised by its checkpoints, which have hashes
of those values and none of newer keys. It had no early stop by default, and otherwise stopped by accuracy; the member's
record of the run tells which. Keys set in the configuration are never changed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from colonnade.common.config.federation import STEPS, FederationConfig
from colonnade.common.config.members import Config
from colonnade.common.crypto.pki.names import TEMPLATE
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.yaml_tree import read_tree
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.json_text import unsealed
from colonnade.common.run.run_folder import MemberFolder, PartyFolder, RunFolder

# Constants of VIMADMM, linear ADMM and FedVS.
_DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("damping", "none"), ("rho", 1.0), ("rho", 0.03), ("tau", 20),
    ("data_bits", 8), ("weight_bits", 12), ("stragglers", 1), ("columns", 1024),
)  # fmt: skip
_DAMPED = ("vimadmm_j", "linear_admm")  # protocols whose files of before say nothing of `damping`, and had none


def load_begun(path: Path, overrides: tuple[str, ...] = ()) -> Config:
    """Reads the configuration stored in a run's folder: complete except for keys newer than the run.

    Every party has a whole section there, so `every_party.KEY=VALUE` sets KEY in all of them. Raises ConfigError.
    """
    tree = with_defaults_before(read_tree(path))
    parties = tree.get("parties")
    return parse(tree, tuple(_spread(overrides, tuple(parties) if isinstance(parties, dict) else ())), begun=True)


def _spread(overrides: tuple[str, ...], parties: tuple[str, ...]) -> Iterator[str]:
    for setting in overrides:
        of_all, dot, rest = setting.partition(".")
        if of_all == TEMPLATE and dot and parties:
            yield from (f"parties.{name}.{rest}" for name in parties)
        else:
            yield setting


def with_defaults_before(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The same tree with the earlier defaults filled in."""
    made = copy.deepcopy(dict(tree))
    if (federation := _below(made, "federation")) is not None:
        stop = federation.setdefault("stop", None)  # a version with the default writes it
        if isinstance(stop, dict):
            stop.setdefault("metric", None)
    steps = _below(made, "federation", "privacy", "steps")
    if steps is not None and steps.get("rate") is not None:
        steps.pop("cost", None)  # its default, which version 0.2.0 wrote although no file may have it beside `rate`
    protocol = _below(made, "federation", "protocol")
    if protocol is not None and protocol.get("name") in _DAMPED:
        protocol.setdefault("damping", "none")
    return made


def as_begun(config: Config, folder: Path) -> Config:
    """A member's own configuration with the defaults of the run in `folder`, the member's; unchanged if there is no
    run.
    """
    federation = config.federation
    if _before_stop(folder):
        federation = _with_stop_before(federation)
    if held := Checkpoints(MemberFolder(folder).checkpoints).config():
        fields = type(federation.protocol).model_fields.keys() - federation.protocol.model_fields_set
        for key, before in _DEFAULTS:
            if key in fields:
                protocol = federation.protocol.model_copy(update={key: before})
                other = federation.model_copy(update={"protocol": protocol})
                if _fits(held, other, f"protocol.{key}"):
                    federation = other
    return config.model_copy(update={"federation": federation})


def _before_stop(folder: Path) -> bool:
    """True if the run in a member's folder was begun without an early stop by default, as its record of the run says.

    The record is there from the first Begin on: some members may have no checkpoint yet where others have one.
    """
    if (stops := RunFolder(folder).stops()) is not None:
        return not stops
    try:
        return not unsealed(PartyFolder(folder).pinned.read_bytes()).get("stops")
    except (OSError, ValueError):
        return False  # no run was begun; a torn one is refused later


def _with_stop_before(federation: FederationConfig) -> FederationConfig:
    """The section as versions up to 0.2.0 read it."""
    if "stop" not in federation.model_fields_set:
        return federation.model_copy(update={"stop": None})
    if federation.stop is None or "metric" in federation.stop.model_fields_set:
        return federation
    return federation.model_copy(update={"stop": federation.stop.model_copy(update={"metric": None})})


def _fits(held: Mapping[str, str], federation: FederationConfig, key: str) -> bool:
    """True if the run was saved under this value: its hash is present, or absent where the value has none."""
    # Only versions up to 0.2.0 kept a hash of the number of steps, which may change.
    hashes = federation.hashes() if key in STEPS else federation.lasting_hashes()
    return hashes.get(key) == held.get(key)


def _below(tree: dict[str, Any], *keys: str) -> dict[str, Any] | None:
    node: Any = tree
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else None
