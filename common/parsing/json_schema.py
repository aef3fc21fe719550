"""JSON Schema of a configuration file, as `colonnade schema` prints it.

It is made from the sections' types, with their short forms, `every_party`, and the keys of every protocol. It checks
keys, types and ranges; `load` also checks which of them exclude each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from colonnade.common.config.federation import LARGEST
from colonnade.common.config.members import Config, Criterion, PartyConfig
from colonnade.common.config.models import LIBRARIES, MODELS, OutsideModel
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.crypto.pki.names import TEMPLATE
from colonnade.common.errors import ConfigError
from colonnade.common.messaging.forms import WIDTHS
from colonnade.common.parsing.dump import KIND_KEYS
from colonnade.common.version import VERSION

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_REF = "#/$defs/"
_PARTY, _PART = "PartyConfig", "-part"
_CSV = ("CsvData", "CsvLabels")
_USUAL = ("gaussian",)  # kinds that a section has if it names none

_OF_PROTOCOLS = "sgd"
"""A kind whose sections take the protocol's kind if they name none: these may have the keys of any kind."""

_SHORT = ("name", "kind")  # keys whose value may stand for the section

_TIME = r"(\d+(\.\d*)?|\.\d+) *(ms|s|min|h)"
_PATTERNS = (
    _TIME,
    rf"exp *\( *{_TIME} *\)",
    rf"uniform *\( *{_TIME} *, *{_TIME} *\)",
    r"fedvs(-shares)? *(\([^)]*\))?",
)
_DELAY: Schema = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": rf"^\s*({'|'.join(_PATTERNS)})\s*$"}]
}
_TEXTS: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_ENDPOINT: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 65535},
        {"type": "string", "pattern": r"^(|\d+|.+:\d+)$"},
    ]
}
_ADDRESS: Schema = {"type": "string", "pattern": r"^(|.+:\d+)$"}


def configuration_schema() -> Schema:
    """The schema of a whole file, draft 2020-12, with the protocols of installed packages."""
    root = section_schema(Config)
    sections = root.pop("$defs")
    definitions = {name: _choices(section, sections) for name, section in sections.items()} | _parts()
    described = {key: value["description"] for key, value in root["properties"].items()}
    part = {"$ref": _REF + _PARTY + _PART}
    properties = {
        **root["properties"],
        "parties": {"description": described["parties"], "type": "object"},
        TEMPLATE: {
            "description": "settings that all parties share; a party's own section overrides them, key by key",
            "anyOf": [part, {"type": "null"}],
        },
    }
    beside = {"properties": {"parties": {"additionalProperties": {"anyOf": [part, {"type": "null"}]}}}}
    alone = {"properties": {"parties": {"additionalProperties": {"$ref": _REF + _PARTY}}}}
    return {
        "$schema": DRAFT,
        **root,
        "title": f"Colonnade {VERSION}: a configuration file",
        "properties": properties,
        "if": {"required": [TEMPLATE]},
        "then": beside,
        "else": alone,
        "$defs": definitions,
    }


class _Untitled(GenerateJsonSchema):
    """Omits titles, which repeat the keys, and keeps the first paragraph of a section's docstring in one line."""

    def field_title_should_be_set(self, _schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        made = super().model_schema(schema)
        made.pop("title", None)
        if "description" in made:
            made["description"] = " ".join(made["description"].partition("\n\n")[0].split())
        return made


def section_schema(model: type[BaseModel], name: str = "{model}") -> Schema:
    """The schema of one section, with its short forms; `$defs` holds the sections below it.

    A choice between kinds of sections is a `oneOf` of references. `name` is the pattern of nested sections' names.
    """
    schema = model.model_json_schema(ref_template=_REF + name, schema_generator=_Untitled)
    definitions = {name.format(model=section): found for section, found in schema.pop("$defs", {}).items()}
    schema["$defs"] = definitions
    for section, found in [*definitions.items(), (name.format(model=model.__name__), schema)]:
        properties = found.get("properties", {})
        for (of, key), change in _FORMS.items():
            if section == name.format(model=of) and key in properties:
                properties[key] = _beside(properties[key], change(properties[key], definitions))
        if section in [name.format(model=one) for one in _CSV]:
            properties["id"] = {**properties["key"], "description": "another name of `key`"}
    return schema


def _beside(old: Schema, new: Schema) -> Schema:
    """A new type with the old one's description and default."""
    return {**{key: old[key] for key in ("description", "default") if key in old}, **new}


def _choices(value: Any, definitions: Mapping[str, Schema], *, whole: bool = True) -> Any:
    """Decides every union of sections by the key that names the kind.

    Args:
        whole: False if the kind may be given elsewhere, as in `every_party`.
    """
    if isinstance(value, list):
        return [_choices(item, definitions, whole=whole) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: _choices(below, definitions, whole=whole) for key, below in value.items() if key != "discriminator"}
    if "oneOf" not in value:
        return value
    kinds = kinds_of(value["oneOf"], definitions)
    return {**{key: below for key, below in value.items() if key != "oneOf"}, **_union(kinds, definitions, whole=whole)}


def kinds_of(union: list[Schema], definitions: Mapping[str, Schema]) -> dict[tuple[str, str], str]:
    """Sections of a union by the key and the word that select them; user code has the key `file` and no word."""
    return dict(_kinds(union, definitions))


def _kinds(union: list[Schema], definitions: Mapping[str, Schema]) -> Iterator[tuple[tuple[str, str], str]]:
    for alternative in union:
        section = alternative["$ref"].removeprefix(_REF)
        properties = definitions[section]["properties"]
        if "file" in properties:
            yield ("file", ""), section
            continue
        if section.removesuffix(_PART) == OutsideModel.__name__:
            yield from ((("name", name), section) for name in MODELS.entries)
            continue
        key = next(key for key in KIND_KEYS if {"const", "enum"} & set(properties.get(key, ())))
        words = properties[key]
        yield from (((key, word), section) for word in words.get("enum", [words.get("const")]))


def _union(kinds: Mapping[tuple[str, str], str], definitions: Mapping[str, Schema], *, whole: bool) -> Schema:
    key = next(key for key, kind in kinds if kind)
    words = [kind for _, kind in kinds if kind]
    usual = next((word for word in words if word in _USUAL), None)
    rules = [_rule(key, word, section, usual) for (_, word), section in kinds.items() if word]
    own = next((section for (_, word), section in kinds.items() if not word), None)
    section: Schema = {"type": "object", "allOf": rules}
    named: Schema = {"properties": {key: {"enum": words}}}
    if not whole or _OF_PROTOCOLS in words:
        sections = dict.fromkeys(section for (_, word), section in kinds.items() if word)
        named = {"properties": _any_of([definitions[name]["properties"] for name in sections], definitions)}
        named["properties"][key] = {"enum": words}
        named["additionalProperties"] = False
    elif usual is None:
        named["required"] = [key]
    if own is None:
        section |= named
    else:
        section |= {"if": {"required": ["file"]}, "then": {"$ref": _REF + own}, "else": named}
    short: list[Schema] = []
    if key in _SHORT:
        short.append({"enum": words})
    if own is not None:
        short.append({"type": "string", "pattern": r"^.+\.py:\w+$"})
    if libraries := [word for word in words if word in LIBRARIES]:  # their name may be followed by an architecture
        named = {"type": "string", "pattern": rf"^({'|'.join(libraries)})/[\w.-]+$"}
        short.append({"type": "object", "properties": {key: named}, "required": [key]})
    return {"anyOf": [*short, section]} if short else section


def _any_of(kinds: list[dict[str, Schema]], definitions: Mapping[str, Schema]) -> dict[str, Schema]:
    """Keys of several kinds, where the kind may be given elsewhere: a value must be valid in one kind."""
    found: dict[str, list[Schema]] = {}
    for properties in kinds:
        for key, value in properties.items():
            alternatives = found.setdefault(key, [])
            if value not in alternatives:
                alternatives.append(value)
    loose = {key: _choices(values, definitions, whole=False) for key, values in found.items()}
    return {key: values[0] if len(values) == 1 else {"anyOf": values} for key, values in loose.items()}


def _rule(key: str, word: str, section: str, usual: str | None) -> Schema:
    """The keys of a kind, if it is named, or if it is the default and none is named."""
    asked: Schema = {"properties": {key: {"const": word}}}
    if word != usual:
        asked["required"] = [key]
    return {"if": asked, "then": {"$ref": _REF + section}}


def _roster(_value: Schema, _definitions: Schema) -> Schema:
    pin = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    return {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": LARGEST},
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
            {"type": "object", "additionalProperties": pin, "minProperties": 1},
        ]
    }


def _protocols(_value: Schema, definitions: Schema) -> Schema:
    """One section for every protocol, including those of installed packages."""
    union = []
    for name in CONTRACTS:
        try:
            schema = section_schema(CONTRACTS[name].config, f"{name}-{{model}}")  # a package's may be called as ours
        except ConfigError:
            continue  # a package's, which is broken: whoever names it is told
        definitions.update(schema.pop("$defs"))
        schema["properties"]["name"] = {"description": "the protocol", **schema["properties"]["name"], "const": name}
        definitions[f"protocol-{name}"] = schema
        union.append({"$ref": f"{_REF}protocol-{name}"})
    return {"oneOf": union}


def _quorum(value: Schema, _definitions: Schema) -> Schema:
    def one(key: str, below: Schema) -> Schema:
        return {"type": "object", "properties": {key: below}, "required": [key], "additionalProperties": False}

    number: Schema = {"type": "integer"}
    short = [one("deadline", {"type": "number", "minimum": 0}), *(one(key, number) for key in ("fastest", "threshold"))]
    return {"anyOf": [{"const": "wait"}, {"$ref": value["$ref"]}, *short]}


def _stop(value: Schema, _definitions: Schema) -> Schema:
    return {**value, "anyOf": [{"const": "none"}, *value["anyOf"]]}


def _decide(value: Schema, _definitions: Schema) -> Schema:
    """A criterion without costs, a threshold, or a section with either."""
    free = [each for each in get_args(Criterion) if each != "cost"]
    costs, number, none = ("false_positive", "false_negative"), {"type": "number"}, {"type": "null"}
    without = dict.fromkeys(costs, none)
    kinds: list[Schema] = [
        {"properties": {"by": {"enum": free}, "at": none, **without}, "required": ["by"]},
        {
            "properties": {"by": {"const": "cost"}, "at": none, **dict.fromkeys(costs, number)},
            "required": ["by", *costs],
        },
        {"properties": {"by": none, "at": number, **without}, "required": ["at"]},
    ]
    section = next(each for each in value["anyOf"] if "$ref" in each)
    at = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    return {"anyOf": [{"enum": free}, at, {**section, "anyOf": kinds}, none]}


def _form(value: Schema, definitions: Schema) -> Schema:
    """Bits per entry, or a section whose kind one of three keys selects."""
    null = [{"type": "null"}] if value.get("default", 0) is None else []
    kinds = ("BitsConfig", "TopConfig", "SignConfig")
    sections = [{"$ref": _REF + name} for kind in kinds for name in definitions if name.endswith(kind)]
    return {"anyOf": [{"enum": list(WIDTHS)}, *sections, *null]}


def _always(schema: Schema) -> Callable[[Schema, Schema], Schema]:
    return lambda _value, _definitions: schema


_FORMS: Mapping[tuple[str, str], Callable[[Schema, Schema], Schema]] = {
    ("FederationConfig", "parties"): _roster,
    ("FederationConfig", "protocol"): _protocols,
    ("FederationConfig", "quorum"): _quorum,
    ("FederationConfig", "stop"): _stop,
    ("ServerConfig", "decide"): _decide,
    **{("CompressConfig", key): _form for key in ("up", "down", "evaluate")},
    ("BitsConfig", "bits"): _always({"enum": list(WIDTHS)}),
    ("SignConfig", "sign"): _always({"const": True}),
    ("ChaosConfig", "delay"): _always(
        {"anyOf": [*_DELAY["anyOf"], {"type": "object", "additionalProperties": _DELAY}]}
    ),
    ("ChaosConfig", "jitter"): _always(_DELAY),
    **{("ChaosConfig", key): _always(_TEXTS) for key in ("pause", "partition")},
    **{(section, key): _always(_ENDPOINT) for section in ("ServerConfig", _PARTY) for key in ("metrics", "health")},
    ("ServerConfig", "listen"): _always(_ADDRESS),
    (_PARTY, "connect"): _always(_ADDRESS),
    **{(section, "delimiter"): _always({"type": "string", "pattern": r"^(.|\t|tab|\\t)$"}) for section in _CSV},
}
"""Forms that a key accepts beside its type: (section, key) -> the schema that replaces the type's own."""


def _parts() -> dict[str, Schema]:
    """A party's sections for `every_party` and for itself: no key is required, since the other place may have it."""
    schema = section_schema(PartyConfig, "{model}" + _PART)
    sections = {**schema.pop("$defs"), _PARTY + _PART: schema}
    parts = {name: _choices(section, sections, whole=False) for name, section in sections.items()}
    if not MODELS.entries:
        del parts[OutsideModel.__name__ + _PART]  # nothing leads to it
    return {name: {key: value for key, value in part.items() if key != "required"} for name, part in parts.items()}
