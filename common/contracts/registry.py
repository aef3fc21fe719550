"""Registry of protocols by name: built-in ones, and those of installed packages. See docs/protocol_parts.md.

A protocol is registered once. A built-in one is listed in `NAMES`; its contract, server side and party side are the
modules of that name in `common/protocols`, `server/protocols` and `client/protocols`. An external package names one
module in its entry-point group `colonnade.protocols`, which holds all three. Either is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.config.outside import OUTSIDE_LOSSES, OUTSIDE_METRICS
from colonnade.common.config.run_options import POISSON
from colonnade.common.contracts.contract import Contract
from colonnade.common.errors import ConfigError
from colonnade.common.run.plug_ins import PREFIX, PlugIns, owner

NAMES = (
    "split",
    "split_avg",
    "fedvs",
    "fedbcd",
    "fdml",
    "c_vfl",
    "vafl",
    "czofo",
    "zoo_vfl",
    "syn_zoo_vfl",
    "vfl_afe",
    "vimadmm",
    "vimadmm_j",
    "vfedmh",
    "centralized",
    "linear_admm",
    "agg_vfl",
    "local",
    "codes",
    "secureboost",
    "additive",
    "hetero_lr",
    "scorecard",
)  # fmt: skip
"""The built-in protocols, in the order in which they are listed."""

OUTSIDE = PlugIns("protocols", NAMES)  # protocols of installed packages: each entry names its module

_NEEDED = ("CONTRACT", "serve", "participate")

T = TypeVar("T")


class ByName(Mapping[str, T]):
    """One attribute of the protocols' modules, by protocol name. A lookup imports that protocol alone.

    Args:
        package: package of the built-in modules.
        attribute: its name, which is the same in the module of an external package.
        everywhere: True if every protocol has it; else protocols without it are left out, and listing imports all.
    """

    def __init__(self, package: str, attribute: str, *, everywhere: bool = True) -> None:
        self._package, self._attribute, self._everywhere = package, attribute, everywhere

    def __getitem__(self, name: str) -> T:
        module = import_module(f"{self._package}.{name}") if name in NAMES else _from_outside(name)
        try:
            found: T = getattr(module, self._attribute)
        except AttributeError:
            raise KeyError(name) from None
        return found

    def __contains__(self, name: object) -> bool:
        known = name in NAMES or name in OUTSIDE.entries
        return known if self._everywhere else known and super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in (*NAMES, *OUTSIDE.entries) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _from_outside(name: str) -> ModuleType:
    """The module that a package registers. Raises KeyError if none does, ConfigError if it is not a protocol."""
    module = OUTSIDE.load(name)
    entry = OUTSIDE.entries[name]
    if missing := next((wanted for wanted in _NEEDED if not hasattr(module, wanted)), None):
        raise ConfigError(
            f"the protocol {name} of {owner(entry)}: {entry.value} has no {missing}",
            hint="docs/protocol_parts.md says what a protocol's module holds",
        )
    if not isinstance(module.CONTRACT, Contract):
        raise ConfigError(
            f"the protocol {name} of {owner(entry)}: CONTRACT is no Contract",
            hint="docs/protocol_parts.md says what a protocol's module holds",
        )
    if module.CONTRACT.name != name:
        raise ConfigError(
            f"{owner(entry)} registers {name!r}, and its contract says {module.CONTRACT.name!r}",
            hint="the package needs one name: that of its entry point is also the config's, "
            f"`name: Literal[{name!r}] = {name!r}`",
        )
    loaded: ModuleType = module
    return loaded


CONTRACTS: Mapping[str, Contract[Any]] = ByName("colonnade.common.protocols", "CONTRACT")  # contract of every protocol


def imported_contracts() -> dict[str, Contract[Any]]:
    """Contracts of the built-in protocols, and of outside ones that a configuration has named.

    For hints and lists: other packages are neither imported nor able to break it.
    """
    found = {name: CONTRACTS[name] for name in NAMES}
    for name in OUTSIDE.loaded:
        with suppress(ConfigError):  # it was refused when it was named
            found[name] = CONTRACTS[name]
    return found


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
    """True if a key of a Hello's config names a part instead of a key of the federation section."""
    return key.startswith(_KEY)


def other_version(key: str, party: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The sentence about a part that differs between the two ends.

    Args:
        party: the other end.
        theirs, ours: what both state.
    """
    kind, _, name = key.removeprefix(_KEY).partition(".")
    what = {"losses": "loss"}.get(kind, kind.removesuffix("s"))
    has, here = theirs.get(key, "nothing")[:80], ours.get(key, "nothing")
    return f"{party!r} has {has} for the {what[:80]} {name[:80]!r}, the server {here}"
