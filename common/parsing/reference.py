"""Every section and key of a configuration file, from the sections' types, for pages and commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from colonnade.common.config.members import Config
from colonnade.common.config.protocol import ProtocolConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.parsing.dump import KIND_KEYS
from colonnade.common.parsing.json_schema import Schema, kinds_of, section_schema

REQUIRED, LEFT_OUT = "required", "left out"
"""Defaults of keys without a value of their own; the description of a key explains LEFT_OUT."""


@dataclass(frozen=True)
class KeyEntry:
    """A key of a section.

    Args:
        type: its type and range, in words.
        default: as in YAML, or REQUIRED or LEFT_OUT.
    """

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True)
class SectionEntry:
    """A section of the file.

    Args:
        path: dotted path of its first place, "" for the file itself.
        kind: value of the key that selects it among others in this place, "" if there are no others.
        about: one paragraph.
        keys: in the order of the type.
        elsewhere: other places that take the same section.
    """

    path: str
    kind: str
    about: str
    keys: tuple[KeyEntry, ...]
    elsewhere: list[str] = field(default_factory=list)


def sections() -> list[SectionEntry]:
    """All sections, each once, from the outside in."""
    found: dict[type[BaseModel], SectionEntry] = {}
    _visit(Config, "", "", found)
    return list(found.values())


def protocol_section(name: str) -> SectionEntry:
    """The section `federation.protocol` of one protocol. Raises KeyError."""
    contract = CONTRACTS[name]
    return SectionEntry("federation.protocol", name, contract.title, _keys(contract.config))


def _visit(model: type[BaseModel], path: str, kind: str, found: dict[type[BaseModel], SectionEntry]) -> None:
    if model in found:
        if path not in (found[model].path, *found[model].elsewhere):
            found[model].elsewhere.append(path)
        return
    about = " ".join((model.__doc__ or "").partition("\n\n")[0].split())
    if issubclass(model, ProtocolConfig):
        about = CONTRACTS[kind].title
    found[model] = SectionEntry(path, kind, about, _keys(model))
    # A party's sections come first: the server's own columns and model are of the same types.
    for key, value in sorted(model.model_fields.items(), key=lambda item: item[0] in ("server", "launch")):
        below = f"{path}.{key}" if path else key
        if value.annotation is ProtocolConfig:
            for name, contract in CONTRACTS.items():
                _visit(contract.config, below, name, found)
            continue
        models = list(dict.fromkeys(_models(value.annotation)))
        below += ".NAME" if below == "parties" else ""
        for one in models:
            _visit(one, below, _kind(one) if len(models) > 1 else "", found)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _kind(model: type[BaseModel]) -> str:
    """The words that select a section among others; `file` for user code, else the section's first key."""
    for key in KIND_KEYS:
        if (found := model.model_fields.get(key)) is not None and (words := get_args(found.annotation)):
            return ", ".join(map(str, words))
    return next(iter(model.model_fields))


def _keys(model: type[BaseModel]) -> tuple[KeyEntry, ...]:
    schema = section_schema(model)
    found = []
    # The key that selects the section, then those that must be given.
    first = sorted(
        model.model_fields.items(), key=lambda item: (not _selects(item[0], item[1]), not item[1].is_required())
    )
    for name, value in first:
        type_ = _in_words(schema["properties"][name], schema["$defs"])
        meaning = value.description or _inherited(model, name)
        found.append(KeyEntry(name, type_, _default(value), meaning))
    return tuple(found)


def _inherited(model: type[BaseModel], key: str) -> str:
    """Description of a key that a package's protocol redefines without one."""
    base = ProtocolConfig.model_fields.get(key) if issubclass(model, ProtocolConfig) else None
    return "" if base is None else base.description or ""


def _selects(key: str, value: FieldInfo) -> bool:
    return key in KIND_KEYS and get_origin(value.annotation) is Literal


def _default(value: FieldInfo) -> str:
    if value.is_required():
        return REQUIRED
    default = value.get_default(call_default_factory=True)
    if default is None:
        return LEFT_OUT
    if isinstance(default, BaseModel):
        given = default.model_dump(mode="json", exclude_unset=True)
        kind = next((str(getattr(default, key)) for key in KIND_KEYS if key in type(default).model_fields), "")
        default = {"name": kind, **given} if kind and given else kind or given
    default = list(default) if isinstance(default, tuple) else default
    text = yaml.safe_dump(default, default_flow_style=True, sort_keys=False, width=1000)
    return text.strip().removesuffix("...").strip()


_PLAIN: Mapping[str, str] = {
    "boolean": "true or false",
    "integer": "whole number",
    "null": "",
    "number": "number",
    "string": "text",
}


def _in_words(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    """A schema's type and range, in words."""
    if "const" in schema or "enum" in schema:
        return _listed([_word(value) for value in schema.get("enum", [schema.get("const")])])
    if "oneOf" in schema:
        words = [kind or "./FILE.py:NAME" for _, kind in kinds_of(schema["oneOf"], definitions)]
        return "section: " + _listed([f"`{word}`" for word in words])
    if "anyOf" in schema:
        found = [word for word in (_in_words(one, definitions) for one in schema["anyOf"]) if word]
        return ("; or " if "," in "".join(found) else " or ").join(dict.fromkeys(found))
    below = _below(schema)
    if below is not None:
        opening, each = below
        return opening + _in_words(each, definitions)
    plain = _PLAIN.get(schema.get("type", ""), "section")
    return "path" if schema.get("format") == "path" else plain + _range(schema)


def _below(schema: Schema) -> tuple[str, Schema] | None:
    """The type of the entries of a list or a mapping, and the words that precede it."""
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])}: ", schema["prefixItems"][0]
    if "items" in schema:
        return "list of ", schema["items"]
    below = schema.get("additionalProperties")
    return ("by name: ", below) if isinstance(below, dict) else None


def _range(schema: Schema) -> str:
    words = (
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    )
    if schema.get("type") == "integer" and "exclusiveMinimum" in schema:
        schema = {**schema, "minimum": schema["exclusiveMinimum"] + 1}
        del schema["exclusiveMinimum"]
    found = [f"{word} {schema[key]:g}" for key, word in words if key in schema]
    return f", {' and '.join(found)}" if found else ""


def _word(value: Any) -> str:
    return f"`{yaml.safe_dump(value).strip().removesuffix('...').strip()}`"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
