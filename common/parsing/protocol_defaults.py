"""Settings that depend on the protocol, filled into the members' sections where these leave them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.common.config.optimisers import OptimiserConfig
from colonnade.common.config.protocol import Defaults, ProtocolConfig, for_task

Tree = Mapping[str, Any]


def with_defaults(tree: Tree) -> dict[str, Any]:
    """The same with the optimisers, bottom models and constants of its protocol's defaults.

    An optimiser without a `name` is the protocol's, with the given keys changed.

    Args:
        tree: a configuration's, its protocol section validated and `every_party` merged.
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
        "model": dict(defaults.model),
        **section,
        "optimiser": _optimiser(section, "optimiser", defaults.optimiser),
        "head_optimiser": _optimiser(section, "head_optimiser", defaults.own_head),
    }


def _server(section: Tree, defaults: Defaults) -> Any:
    found = {"head": dict(defaults.joint), **section, "optimiser": _optimiser(section, "optimiser", defaults.head)}
    if isinstance(active := section.get("active"), Mapping):
        own = _optimiser(active, "optimiser", defaults.optimiser)
        found["active"] = {"model": dict(defaults.model), **active, "optimiser": own}
    return found


def _optimiser(section: Tree, key: str, default: OptimiserConfig) -> Any:
    given = section.get(key, {})
    if not isinstance(given, Mapping) or "name" in given:
        return given  # named: its own defaults, not the protocol's
    return {**default.model_dump(), **given}
