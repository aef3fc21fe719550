"""Converts pydantic's findings to one `ConfigError` in the configuration's terms.

It names the key as in the file, the value, the allowed values, and the nearest valid word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import reduce
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.registry import imported_contracts
from colonnade.common.crypto.pki.names import TEMPLATE
from colonnade.common.errors import ConfigError, EnvironmentFault, InputError, nearest, shown
from colonnade.common.parsing.dump import KIND_KEYS
from colonnade.common.run.plug_ins import Extended, PlugIns

_USUAL = "gaussian"  # mechanism of a section that names none
_PLACES = 4  # most places that an error names for a misplaced key, and most kinds

Path = tuple[str | int, ...]

# Expected values by pydantic's error type; its context fills the braces.
_EXPECTED: Mapping[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "keys and values",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "list_type": "a list",
    "model_attributes_type": "keys and values",
    "model_type": "keys and values",
    "path_type": "a path",
    "string_pattern_mismatch": "{forms}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} character",
    "string_type": "text",
    "too_long": "at most {max_length} entries",
    "too_short": "at least {min_length} entries",
    "tuple_type": "a list",
}


def in_words(errors: list[ErrorDetails], root: type[BaseModel], merged: Any, written: Any) -> ConfigError:
    """The first error.

    Args:
        root: the model of the whole file.
        written: the file's tree, before `every_party` was merged under the parties.
    """
    found = _foremost(errors, merged)
    first, path = found[0], _path(merged, found[0]["loc"])
    where = _Place(root, merged, path, dotted(_as_written(written, path)))
    match first["type"]:
        case "extra_forbidden":
            return where.unknown_key(str(path[-1]), path[:-1])
        case "missing":
            return where.missing(str(first["loc"][-1]))
        case "union_tag_invalid" | "union_tag_not_found":
            return where.wrong_kind(first)
        case "invalid_key":
            return ConfigError(f"{where.name}: a key must be text", hint="put it in quotes")
        case "value_error":
            return ConfigError(f"{where.name}{shown(first['input'])}: {first['msg'].removeprefix('Value error, ')}")
    return where.wrong_value(found)


def _foremost(found: list[ErrorDetails], tree: Any) -> list[ErrorDetails]:
    """The first finding, and the alternatives tried for the same value."""
    # An unknown key goes first: a missing key next to it is often the same, misspelt.
    first = min(found, key=lambda error: error["type"] != "extra_forbidden")
    if first["type"] == "extra_forbidden":
        return [first]
    path = _path(tree, first["loc"])
    same = [error for error in found if _path(tree, error["loc"])[: len(path)] == path]
    # A value of a union has one finding per alternative: the deepest location fits best.
    depths = [len(_path(tree, error["loc"])) + (error["type"] == "missing") for error in same]
    return [error for error, depth in zip(same, depths, strict=True) if depth == max(depths)]


class _Place:
    """Location of an error: its path in the merged tree, and its name in the file."""

    def __init__(self, root: type[BaseModel], tree: Any, path: Path, name: str) -> None:
        self._root, self._tree, self._path, self.name = root, tree, path, name

    def unknown_key(self, key: str, above: Path) -> ConfigError:
        known = self._keys(above)
        first, colon, rest = key.partition(":")
        if colon and first in known and _at(self._tree, self._path) is None:  # YAML's `{patience:3}` is one key
            hint = f"write `{first}: {rest or 'VALUE'}`, with a space behind the colon"
            return ConfigError(f"{self.name}: unknown key (did you mean {first!r}?)", hint=hint)
        allowed = ", ".join(known)
        if others := _kinds([option for option in self._options(above, every=True) if key in _fields(option)]):
            hint = f"it is a key of {others}; allowed with {_kinds(self._options(above))}: {allowed}"
            return ConfigError(f"{self.name}: unknown key", hint=hint)
        if not nearest(key, known) and (elsewhere := self._elsewhere(key)):
            return ConfigError(f"{self.name}: unknown key", hint=f"did you mean {_either(elsewhere)}?")
        return ConfigError(f"{self.name}: unknown key{nearest(key, known)}", hint=f"allowed here: {allowed}")

    def missing(self, key: str) -> ConfigError:
        wanted = self._description((*self._path, key))
        return ConfigError(f"{self._join(key)}: missing", hint=wanted or "add it")

    def wrong_kind(self, error: ErrorDetails) -> ConfigError:
        """The discriminator key (`name`, `source`, `kind`) is wrong or missing."""
        given, key = _at(self._tree, self._path), error["ctx"]["discriminator"].strip("'")
        own = [] if key.isidentifier() else ["./FILE.py:NAME"]
        key = "name" if own else key  # a function decides: by `name`, or by a user file
        kinds = [*self._kinds(key), *own]
        if not isinstance(given, Mapping):
            name, said = self.name, given
        elif key not in given:
            typo = next((str(word) for word in given if nearest(str(word), [key])), None)
            if typo is not None:
                return ConfigError(f"{self._join(typo)}: unknown key{nearest(typo, [key])}")
            return ConfigError(f"{self._join(key)}: missing", hint=f"one of {', '.join(kinds)}")
        else:
            name, said = self._join(key), given[key]
        hint = ""
        if (plug_ins := self._plug_ins()) is not None:
            hint = f"others come with packages: install the one that registers it ({plug_ins.group}) on this machine"
        return ConfigError(f"{name}{shown(said)}: expected {_either(kinds)}{nearest(str(said), kinds)}", hint=hint)

    def wrong_value(self, errors: Sequence[ErrorDetails]) -> ConfigError:
        # In the short form a model's field is one step below the value.
        short = (*self._path, *errors[0]["loc"][-1:])
        forms = self._forms(self._path) or self._forms(short) or self._description(self._path) or "another form"
        words = [word for error in errors for word in _expected(error, forms)]
        given = errors[0]["input"]
        near = nearest(given, [word.strip("'") for word in words if word[0] == "'"]) if isinstance(given, str) else ""
        hint = "put it in quotes" if isinstance(given, int | float | date) and "text" in words else ""
        if hint and isinstance(given, bool):
            hint += f", as it is to be read: {str(given).lower()!r} (so Boolean columns have it), 'yes' or 'no'"
        return ConfigError(f"{self.name}{shown(given)}: expected {_either(words)}{near}", hint=hint)

    def _join(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _keys(self, above: Path) -> list[str]:
        keys = {key for option in self._options(above) for key in _fields(option)}
        return sorted(keys | ({TEMPLATE} if not above else set()))

    def _elsewhere(self, key: str) -> list[str]:
        """Sections, or sections of these, that have a key of this name; a party's as `every_party`."""
        party = next(iter(self._tree.get("parties") or ()), "NAME") if isinstance(self._tree, dict) else "NAME"
        tops: list[Path] = [("federation",), ("federation", "protocol"), ("server",), ("parties", party)]
        places = [*tops, *((*top, inner) for top in tops for inner in self._keys(top))]
        allowed = [place for place in dict.fromkeys(places) if self._sure(place, key)]
        found = [dotted((*((TEMPLATE, *place[2:]) if place[0] == "parties" else place), key)) for place in allowed]
        here = dotted((TEMPLATE, *self._path[2:]) if self._path[0] == "parties" else self._path)
        found = [place for place in found if place != here]
        return [place for place in found if place.count(".") == min(each.count(".") for each in found)][:_PLACES]

    def _sure(self, place: Path, key: str) -> bool:
        """True if the section, as the file stands, accepts the key; for a missing section, if any of its kinds does."""
        having = [key in _fields(option) for option in self._options(place) if _fields(option)]
        return any(having) if _path(self._tree, place) == place else bool(having) and all(having)

    def _kinds(self, key: str) -> list[str]:
        fields = [_fields(option).get(key) for option in self._options(self._path, every=True)]
        return list(dict.fromkeys(word for field in fields if field for word in get_args(field.annotation)))

    def _plug_ins(self) -> PlugIns | None:
        """The plug-ins that a value here may name."""
        fields = [_fields(option).get(self._path[-1]) for option in self._options(self._path[:-1], every=True)]
        marks = [mark for field in fields if field for mark in field.metadata if isinstance(mark, Extended)]
        return marks[0].plug_ins if marks else None

    def _description(self, path: Path) -> str:
        fields = [_fields(option).get(path[-1]) for option in self._options(path[:-1])]
        return next((field.description for field in fields if field and field.description), "")

    def _forms(self, path: Path) -> str:
        """Forms of a value with a pattern: the field's examples."""
        fields = [_fields(option).get(path[-1]) for option in self._options(path[:-1], every=True)]
        found = (_either([str(word) for word in field.examples]) for field in fields if field and field.examples)
        return next(found, "")

    def _options(self, path: Path, *, every: bool = False) -> list[Any]:
        """Possible types at a path; among several models those of the kind named in the file, or with `every` all."""
        options, node = [self._root], self._tree
        for step in path:
            options = [below for option in _fitting(options, node) for below in _below(option, step)]
            node = node[step] if _path(node, (step,)) else None
        return options if every else _fitting(options, node)


def dotted(path: Path) -> str:
    """A key as `--set` takes it."""
    return ".".join(map(str, path))


def _path(tree: Any, location: Sequence[str | int]) -> Path:
    """The steps of a location that exist in the file; pydantic inserts the names of alternatives between them."""
    path: list[str | int] = []
    for step in location:
        there = step in tree if isinstance(tree, dict) else isinstance(tree, list) and step in range(len(tree))
        if there:
            path.append(step)
            tree = tree[step]
    return tuple(path)


def _at(tree: Any, path: Path) -> Any:
    return reduce(lambda node, step: node[step], path, tree)


def _as_written(written: Any, path: Path) -> Path:
    """The path in the file for a path of the merged tree."""
    template = (TEMPLATE, *path[2:])
    from_template = path[:1] == ("parties",) and _path(written, path) != path and _path(written, template) == template
    return template if from_template and len(path) > len(("parties", "NAME")) else path


def _options_of(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return [*_options_of(inner), *_from_outside(marks)]
    if get_origin(annotation) in (Union, UnionType):
        return [option for argument in get_args(annotation) for option in _options_of(argument)]
    if annotation is ProtocolConfig:
        return [contract.config for contract in imported_contracts().values()]
    return [annotation]


def _fields(option: Any) -> Mapping[Any, FieldInfo]:
    return getattr(option, "model_fields", {})


def _below(option: Any, step: str | int) -> list[Any]:
    if get_origin(option) is dict:
        return _options_of(get_args(option)[1])
    field = _fields(option).get(step)
    return [] if field is None else [*_options_of(field.annotation), *_from_outside(field.metadata)]


def _from_outside(marks: Sequence[Any]) -> list[Any]:
    """Models of installed plug-ins, from a union's annotations."""
    return [option for mark in marks if isinstance(mark, Extended) for option in mark.options()]


def _fitting(options: list[Any], node: Any) -> list[Any]:
    """The models of the kind that the file names, or of a `mechanism` that it leaves out."""
    given = {"mechanism": _USUAL, **node} if isinstance(node, dict) else {}

    def fits(option: Any) -> bool:
        literals = {key: field for key, field in _fields(option).items() if get_origin(field.annotation) is Literal}
        kinds = {key: get_args(field.annotation) for key, field in literals.items()}
        return all(
            given.get(key, words[0]) in words for key, words in kinds.items() if len(words) == 1 or key == "name"
        )

    def complete(option: Any) -> bool:
        return all(key in given for key, field in _fields(option).items() if field.is_required())

    models = [option for option in options if _fields(option) and fits(option)]
    if len(options) == 1 or not models:
        return options
    return [model for model in models if complete(model)] or models


def _kinds(options: list[Any]) -> str:
    """The words that select these sections, as `name: sgd, adam`; "" if none does."""
    fields = [(key, _fields(option).get(key)) for key in KIND_KEYS for option in options]
    kinds = [(key, get_args(field.annotation)) for key, field in fields if field is not None]
    key = next((key for key, words in kinds if words), "")
    words = sorted({str(word) for each, words in kinds if each == key for word in words})
    more = f" and {len(words) - _PLACES} others" if len(words) > _PLACES else ""
    return f"`{key}: {', '.join(words[:_PLACES])}`{more}" if key else ""


def _expected(error: ErrorDetails, forms: str) -> list[str]:
    if error["type"] == "literal_error":
        return re.split(", | or ", error["ctx"]["expected"])
    template = _EXPECTED.get(error["type"])
    if template is None:
        return [error["msg"].removeprefix("Input should be ")]
    return [template.format(forms=forms, **error.get("ctx", {}))]


def _either(words: Sequence[str]) -> str:
    *rest, last = dict.fromkeys(words)
    return f"{', '.join(rest)} or {last}" if rest else last


@contextmanager
def whose(member: str) -> Iterator[None]:
    """Prefixes an error with the member's name, unless it begins with it or with a key of the agreed section.

    Within another member's, it is the inner one that counts.
    """
    try:
        yield
    except (InputError, EnvironmentFault) as wrong:
        own = str(wrong).startswith(("federation.", f"{member}:", f"{member} ", f"{member}.", f"parties.{member}"))
        if own or wrong.named:
            raise
        raise wrong.of(member) from wrong
