"""The space of a search: keys of the configuration, and the values to try for each.

By default these are learning rates, the batch, and the protocol's own constants.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from colonnade.common.config.members import Config, SearchedKey
from colonnade.common.config.optimisers import OptimiserConfig
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.yaml_tree import override

Space = Mapping[str, SearchedKey]
Tree = dict[str, Any]

SECTION = "search"

_DIGITS = 4  # significant digits of a tried value
_COMPARED = (
    "federation.rows",
    "federation.seed",
    "federation.align",
    "federation.keys",
    "federation.id",
    "federation.task",
    "federation.classes",
    "federation.targets",
    "federation.parties",
    "server.labels",
    "search",
)


def read_space(given: Mapping[str, Any]) -> Space:
    """Reads a space from Python, in the form of the section."""
    found = {}
    for key, value in given.items():
        try:
            found[str(key)] = SearchedKey.model_validate(value)
        except ValidationError as wrong:
            first = wrong.errors(include_url=False)[0]
            place = ".".join((SECTION, str(key), *map(str, first["loc"])))
            raise ConfigError(
                f"{place}: {first['msg'].removeprefix('Value error, ')}",
                hint="for example {low: 0.01, high: 1, log: true} or {choices: [64, 128]}",
            ) from None
    return found


def without_space(tree: Mapping[str, Any]) -> Tree:
    """Copies a configuration without its section `search`."""
    return copy.deepcopy({key: value for key, value in tree.items() if key != SECTION})


def applied(tree: Mapping[str, Any], settings: Iterable[str]) -> Tree:
    """Copies a configuration with changes KEY=VALUE."""
    made = copy.deepcopy(dict(tree))
    for setting in settings:
        override(made, setting)
    return made


def setting(key: str, value: Any) -> str:
    said = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).strip()
    return f"{key}={said.removesuffix('...').strip()}"


@dataclass(frozen=True)
class Searched:
    """One key of a space, as the sampler sees it.

    Args:
        key: dotted, as for `--set`.
    """

    key: str
    values: SearchedKey

    @property
    def labels(self) -> tuple[Any, ...]:
        """The choices as the sampler stores them: lists and mappings as JSON."""
        return tuple(_label(value) for value in self.values.choices)

    def value(self, drawn: Any) -> Any:
        """Converts a drawn value to the trial's value: numbers are rounded to four digits."""
        own = self.values
        if own.choices:
            return own.choices[self.labels.index(drawn)]
        if own.integer:
            return int(drawn)
        assert own.low is not None and own.high is not None  # a range
        return min(max(float(f"{drawn:.{_DIGITS}g}"), own.low), own.high)

    def drawn(self, value: Any) -> Any | None:
        """Converts a value of the configuration to the sampler's form; None outside of the range or the choices."""
        own = self.values
        if own.choices:
            return _label(value) if value in own.choices else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        assert own.low is not None and own.high is not None  # a range
        if not own.low <= value <= own.high or (own.integer and int(value) != value):
            return None
        return int(value) if own.integer else float(value)

    def probes(self) -> list[Any]:
        """Values to check before any trial: both ends of a range, or every choice."""
        own = self.values
        if own.choices:
            return list(own.choices)
        assert own.low is not None and own.high is not None  # a range
        return [int(own.low), int(own.high)] if own.integer else [own.low, own.high]


def check_space(tree: Mapping[str, Any], space: Space) -> tuple[Searched, ...]:
    """Refuses a space with unknown keys, values that a key does not allow, and keys without effect.

    Args:
        tree: the configuration without its section `search`.
        space: at least one key.
    """
    for key, values in space.items():
        if any(key == word or key.startswith(f"{word}.") for word in _COMPARED):
            raise ConfigError(
                f"{SECTION}.{key}: trials with other rows, labels or members cannot be compared",
                hint="set it once for all trials, in the file or with --set",
            )
        one = Searched(key, values)
        parsed = [_parsed(tree, key, value) for value in one.probes()]
        if not values.choices and not values.integer:
            _refuse_whole_numbers(tree, one)
        if all(config == parsed[0] for config in parsed[1:]):
            raise ConfigError(
                f"{SECTION}.{key}: the key has no effect in this configuration",
                hint="every party may have a value of its own: search over parties.NAME instead of every_party",
            )
    return tuple(Searched(key, values) for key, values in space.items())


def own_values(tree: Mapping[str, Any], space: Sequence[Searched]) -> dict[str, Any]:
    """The sampler's form of the configuration's own values, for keys that have one."""
    found = {}
    config = parse(dict(tree)).model_dump(mode="json")
    for one in space:
        path = one.key.split(".")
        places = [["parties", name, *path[1:]] for name in config["parties"]] if path[0] == "every_party" else [path]
        values = [_at(config, place) for place in places]
        if values and all(value == values[0] for value in values) and (drawn := one.drawn(values[0])) is not None:
            found[one.key] = drawn
    return found


def _at(node: Any, path: Sequence[str]) -> Any:
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _parsed(tree: Mapping[str, Any], key: str, value: Any) -> Config:
    try:
        return parse(applied(tree, [setting(key, value)]))
    except InputError as wrong:
        said = str(wrong)
        where = f"{SECTION}.{key}" if said.startswith(key) else f"{SECTION}.{key} = {value}"
        raise ConfigError(f"{where}: {said}", hint=wrong.hint) from None


def _refuse_whole_numbers(tree: Mapping[str, Any], one: Searched) -> None:
    low, high = one.probes()
    between = low + (high - low) * 0.3819660113  # never a whole number
    try:
        parse(applied(tree, [setting(one.key, between)]))
    except InputError:
        raise ConfigError(
            f"{SECTION}.{one.key}: {low:g} and {high:g} are allowed, and {between:.4g} between them is not",
            hint="for whole numbers add `integer: true`",
        ) from None


def _label(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


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
