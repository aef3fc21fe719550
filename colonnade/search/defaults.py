"""Default search space: learning rates, batch, and the protocol's own constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from colonnade.common.config.members import Config
from colonnade.common.config.optimisers import OptimiserConfig
from colonnade.common.config.search import SearchedKey
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import parse
from colonnade.search.space import Space, check_space

_RATES: Mapping[str, tuple[float, float]] = {
    "sgd": (1e-3, 1.0),
    "adam": (1e-4, 3e-2),
    "adamw": (1e-4, 3e-2),
    "adagrad": (1e-3, 0.3),
    "rmsprop": (1e-4, 3e-2),
    "adadelta": (0.1, 10.0),
}
_CONSTANTS: Mapping[str, SearchedKey] = {
    "rho": SearchedKey(low=0.05, high=5, log=True),
    "tau": SearchedKey(low=1, high=40, log=True, integer=True),
    "local_steps": SearchedKey(low=1, high=20, log=True, integer=True),
    "dual_step": SearchedKey(low=0.1, high=1.5, log=True),
    "beta": SearchedKey(low=1e-5, high=0.1, log=True),
    "depth": SearchedKey(low=2, high=6, integer=True),
    "rate": SearchedKey(low=0.02, high=0.3, log=True),
    "l2": SearchedKey(low=0.1, high=30, log=True),
    "c": SearchedKey(low=0.01, high=100, log=True),
}


def default_space(tree: Mapping[str, Any]) -> Space:
    """A space of the keys that this configuration has; refuses one without any.

    Args:
        tree: the configuration, without its section `search`.
    """
    config = parse(dict(tree))
    found: dict[str, SearchedKey] = {}
    for key, values in _candidates(config):
        try:
            check_space(tree, {key: values})
        except InputError:
            continue  # fixed by the protocol, or set by every party
        found[key] = values
    if not found:
        raise ConfigError("search: missing, and there is no usual key to search over", hint="add a section `search`")
    return found


def _candidates(config: Config) -> Iterator[tuple[str, SearchedKey]]:
    federation, server = config.federation, config.server
    protocol = federation.protocol
    for name in type(protocol).model_fields:
        if name in _CONSTANTS:
            yield f"federation.protocol.{name}", _around(getattr(protocol, name), _CONSTANTS[name])
    if "party" in protocol.optimisers:
        yield from _shared_rate("every_party.optimiser.lr", [party.optimiser for party in config.parties.values()])
    if "head" in protocol.optimisers:
        heads = [party.head_optimiser for party in config.parties.values()]
        yield from _shared_rate("every_party.head_optimiser.lr", heads)
    if server is not None and "server" in protocol.optimisers:
        yield from _shared_rate("server.optimiser.lr", [server.optimiser])
    if server is not None and server.active is not None:
        yield from _shared_rate("server.active.optimiser.lr", [server.active.optimiser])
    batch = federation.batch
    if not protocol.full_batch:
        yield "federation.batch", SearchedKey(choices=tuple(sorted({max(1, batch // 2), batch, 2 * batch})))


def _shared_rate(key: str, optimisers: Sequence[OptimiserConfig]) -> Iterator[tuple[str, SearchedKey]]:
    """The learning rate of members with one kind of optimiser: rates of two kinds are not comparable."""
    if len({optimiser.name for optimiser in optimisers}) == 1:
        low, high = _RATES[optimisers[0].name]
        yield key, _around(optimisers[0].lr, SearchedKey(low=low, high=high, log=True))


def _around(value: float, usual: SearchedKey) -> SearchedKey:
    """The usual range, widened if the file's own value is outside."""
    assert usual.low is not None and usual.high is not None  # a range
    if usual.low <= value <= usual.high:
        return usual
    low, high = min(usual.low, value / 3), max(usual.high, value * 3)
    ends = {"low": max(1.0, round(low)), "high": float(round(high))} if usual.integer else {"low": low, "high": high}
    return usual.model_copy(update=ends)
