"""Parts of other packages that a federation agrees on, its protocol and its loss, of one version at all members."""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.config.outside import OUTSIDE_LOSSES, OUTSIDE_METRICS
from colonnade.common.config.run_options import POISSON
from colonnade.common.contracts.registry import OUTSIDE
from colonnade.common.run.plug_ins import PREFIX

_KEY = "plugin."


def agreed_parts(federation: FederationConfig) -> dict[str, str]:
    """`PACKAGE VERSION` of each part, by a key that a Hello states; none where all parts are built in."""
    loss = "" if federation.loss == POISSON else federation.loss
    named = ((OUTSIDE, federation.protocol.name), (OUTSIDE_LOSSES, loss))
    return {
        f"{_KEY}{plug_ins.group.removeprefix(PREFIX)}.{name}": plug_ins.version(name)
        for plug_ins, name in named
        if name in plug_ins.entries
    }


def parts_in_use(federation: FederationConfig, server: ServerConfig | None) -> dict[str, str]:
    """An entry of a summary's environment: the packages of protocol, loss and metrics; none if all are built in."""
    versions = [*agreed_parts(federation).values()]
    versions += [OUTSIDE_METRICS.version(name) for name in (() if server is None else server.extra_metrics)]
    return {"plug-ins": ", ".join(dict.fromkeys(versions))} if versions else {}


def is_part(key: str) -> bool:
    """True if a key of a Hello's config is of a part, and not of the federation section."""
    return key.startswith(_KEY)


def other_version(key: str, party: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The sentence about a part that the two ends do not have alike.

    Args:
        key: of the part.
        party: the other end.
        theirs, ours: what both state.
    """
    kind, _, name = key.removeprefix(_KEY).partition(".")
    what = {"losses": "loss"}.get(kind, kind.removesuffix("s"))
    has, here = theirs.get(key, "nothing")[:80], ours.get(key, "nothing")
    return f"{party!r} has {has} for the {what[:80]} {name[:80]!r}, the server {here}"
