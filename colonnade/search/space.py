"""The space of a search: keys of the configuration, and the values to try for each."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from colonnade.common.config.members import Config
from colonnade.common.config.search import SearchedKey
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
