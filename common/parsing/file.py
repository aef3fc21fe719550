"""Configuration files: read, merged, checked key by key and then as a whole."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from colonnade.common.config.data.tables import TableColumnsConfig
from colonnade.common.config.federation import check_id
from colonnade.common.config.members import ActiveConfig, Config, PartyConfig
from colonnade.common.config.models import UserModule
from colonnade.common.config.optimisers import OptimiserConfig
from colonnade.common.config.protocol import Defaults, ProtocolConfig, for_task
from colonnade.common.contracts.registry import CONTRACTS, NAMES, OUTSIDE
from colonnade.common.errors import ConfigError, shown
from colonnade.common.parsing.consistency import check
from colonnade.common.parsing.error_messages import in_words
from colonnade.common.parsing.yaml_tree import override, read_tree, share_template
from colonnade.common.tracking.sections import read_trackers

Tower = TypeVar("Tower", ActiveConfig, PartyConfig)

_PROTOCOL = ("federation", "protocol")
_GAPS = {"missing": "mean", "unseen": "zero"}


def load(path: Path, overrides: tuple[str, ...] = (), *, begun: bool = False) -> Config:
    """Reads and checks a file. Paths in it are relative to its folder.

    Args:
        overrides: KEY=VALUE with dotted keys, as on the command line.
        begun: True for a run that resumes or has ended, whose id need not name a folder.

    Raises:
        ConfigError: the message names key, value, allowed values and the nearest key.
    """
    return parse(read_tree(path), overrides, begun=begun)


def parse(tree: dict[str, Any], overrides: tuple[str, ...] = (), *, begun: bool = False) -> Config:
    """Checks the content of a YAML file. See `load`."""
    tree = copy.deepcopy(tree)
    for setting in overrides:
        override(tree, setting)
    merged = share_template(tree)

    try:
        resolved = with_defaults(_with_trackers(_with_protocol(merged)))
    except ValidationError as invalid:
        found = [{**error, "loc": (*_PROTOCOL, *error["loc"])} for error in invalid.errors(include_url=False)]
        raise in_words(cast(list[ErrorDetails], found), Config, merged, tree) from None
    try:
        config = Config.model_validate(resolved)
    except ValidationError as invalid:
        filled = {**resolved, "federation": merged["federation"]} if "federation" in merged else resolved
        raise in_words(invalid.errors(include_url=False), Config, filled, tree) from None
    if not begun:
        check_id(config.federation.id)
    check(config)
    return _with_widths(_with_tables(config))


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Dotted keys whose hashes differ, or that exist on one side only."""
    if ours == theirs:  # of a thousand parties' sections the keys take long
        return []
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def _with_protocol(tree: dict[str, Any]) -> dict[str, Any]:
    """Validates the protocol section by that protocol's own model."""
    federation = tree.get("federation")
    if not isinstance(federation, dict) or "protocol" not in federation:
        return tree  # refused later
    return {**tree, "federation": {**federation, "protocol": _protocol(federation["protocol"])}}


def _with_trackers(tree: dict[str, Any]) -> dict[str, Any]:
    """Reads every member's trackers, so that an error names the member."""

    def read(section: Any, place: str) -> Any:
        if not isinstance(section, dict) or "trackers" not in section:
            return section
        return {**section, "trackers": read_trackers(section["trackers"], f"{place}.trackers")}

    found = {**tree, "server": read(tree["server"], "server")} if "server" in tree else tree
    parties = tree.get("parties")
    if not isinstance(parties, dict):
        return found
    return {**found, "parties": {name: read(party, f"parties.{name}") for name, party in parties.items()}}


def _protocol(value: Any) -> ProtocolConfig:
    if isinstance(value, str):
        value = {"name": value}
    allowed = f"one of {', '.join(CONTRACTS)}"
    if not isinstance(value, dict):
        raise ConfigError(f"federation.protocol{shown(value)}: expected {allowed}, or keys and values")
    if "name" not in value:
        raise ConfigError("federation.protocol.name: missing", hint=allowed)
    name = str(value["name"])
    if name not in CONTRACTS:
        said, hint = OUTSIDE.unknown(name, NAMES)
        raise ConfigError(f"federation.protocol.name = {value['name']!r}: {said}", hint=hint)
    OUTSIDE.refuse_clash(name)
    config: type[ProtocolConfig] = CONTRACTS[name].config
    return config.model_validate(value)


def _with_tables(config: Config) -> Config:
    """The configuration without required `missing` and `unseen` where tables are not encoded."""
    if not config.federation.protocol.typed:
        return config
    return config.model_copy(update={"parties": {name: _with_gaps(party) for name, party in config.parties.items()}})


def _with_gaps(party: PartyConfig) -> PartyConfig:
    if not isinstance(data := party.data, TableColumnsConfig):
        return party
    left = {key: value for key, value in _GAPS.items() if key not in data.model_fields_set}
    return party.model_copy(update={"data": data.model_copy(update=left)})


def _with_widths(config: Config) -> Config:
    """The configuration with the agreed width in built-in models that set none."""
    agreed = CONTRACTS[config.federation.protocol.name].width_of(config.federation)
    if agreed is None:
        return config
    parties = {name: _with_width(party, agreed) for name, party in config.parties.items()}
    server = config.server
    if server is not None and server.active is not None:
        server = server.model_copy(update={"active": _with_width(server.active, agreed)})
    return config.model_copy(update={"parties": parties, "server": server})


def _with_width(tower: Tower, agreed: int) -> Tower:
    model = tower.model
    if isinstance(model, UserModule) or "embedding" in model.model_fields_set:
        return tower
    return tower.model_copy(update={"model": model.model_copy(update={"embedding": agreed})})


Tree = Mapping[str, Any]


def with_defaults(tree: Tree) -> dict[str, Any]:
    """Fills in the protocol's defaults for optimisers, bottom models and constants.

    An optimiser without a `name`, and a model or head of the protocol's kind, are the protocol's with the given keys
    changed. In `tree` the protocol section is validated and `every_party` merged.
    """
    federation = tree.get("federation")
    protocol = federation.get("protocol") if isinstance(federation, Mapping) else None
    if not isinstance(federation, Mapping) or not isinstance(protocol, ProtocolConfig):
        return dict(tree)  # refused later
    task = str(federation.get("task", "classification"))
    found = {**tree, "federation": {**federation, "protocol": protocol.settled(task)}}
    defaults = for_task(protocol.defaults, task)
    if isinstance(parties := tree.get("parties"), Mapping):
        found["parties"] = {name: _party(section, defaults) for name, section in parties.items()}
    if isinstance(server := tree.get("server"), Mapping):
        found["server"] = _server(server, defaults)
    return found


def _party(section: Any, defaults: Defaults) -> Any:
    if not isinstance(section, Mapping):
        return section
    return {
        **section,
        "model": _model(section, "model", defaults.model),
        "optimiser": _optimiser(section, "optimiser", defaults.optimiser),
        "head_optimiser": _optimiser(section, "head_optimiser", defaults.own_head),
    }


def _server(section: Tree, defaults: Defaults) -> Any:
    head = _model(section, "head", defaults.joint)
    found = {**section, "head": head, "optimiser": _optimiser(section, "optimiser", defaults.head)}
    if isinstance(active := section.get("active"), Mapping):
        model, own = _model(active, "model", defaults.model), _optimiser(active, "optimiser", defaults.optimiser)
        found["active"] = {**active, "model": model, "optimiser": own}
    return found


def _model(section: Tree, key: str, default: Tree) -> Any:
    """The protocol's model with the given keys changed; another kind has its own defaults."""
    given = section.get(key, default)
    named = {"name": given} if isinstance(given, str) else given
    same = isinstance(named, Mapping) and named.get("name") == default["name"]
    return {**default, **named} if same else given


def _optimiser(section: Tree, key: str, default: OptimiserConfig) -> Any:
    given = section.get(key, {})
    if not isinstance(given, Mapping) or "name" in given:
        return given  # named: its own defaults, not the protocol's
    return {**default.model_dump(), **given}
