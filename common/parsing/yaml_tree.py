"""The unchecked content of a configuration file: keys and values, with overrides and the template applied."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, get_args

import yaml

from colonnade.common.config.data.sources import DATA_MODELS, SOURCES, config_class
from colonnade.common.config.federation import read_roster
from colonnade.common.crypto.pki.names import TEMPLATE
from colonnade.common.errors import ConfigError, nearest, shown

_DEEPEST, _MOST = 64, 1_000_000
_LARGEST = 16 << 20  # characters of a file
_DIGITS = 400  # of a whole number, whatever its base: Python prints none of 4300, and 1:59:59.. takes quadratic time
_OTHER_BASE = re.compile(r"[-+]?(0_*[0-9bx]|.*:)")  # YAML 1.1 has numbers in base 2, 8, 16 and 60
_A_VALUE = 1024  # characters of a text that count as one value: aliases may repeat it
_MERGE, _VALUE = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"
_TOO_DEEP = f"it is nested more than {_DEEPEST} deep, or contains itself"


def read_tree(path: Path) -> dict[str, Any]:
    """Reads a YAML file. Raises ConfigError."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ConfigError(f"{path} has more than {_LARGEST >> 20} MB, and is no configuration")
        tree = parse_yaml(text)
    except FileNotFoundError:
        if path.is_symlink():
            said = f"{path} is a symbolic link to {path.readlink()}, which does not exist"
            raise ConfigError(said, hint="mend the link, or name the file itself") from None
        raise ConfigError(f"{path}: there is no such file", hint=_near(path)) from None
    except (OSError, UnicodeDecodeError) as unreadable:
        raise ConfigError(f"{path} cannot be read: {unreadable}") from None
    except yaml.YAMLError as malformed:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(malformed).split())}") from None
    if not isinstance(tree, dict):
        found = "is empty" if tree is None else f"holds {'a list' if isinstance(tree, list) else 'text'}"
        raise ConfigError(
            f"{path}: expected keys and values, the file {found}", hint="start from experiments/demo.yaml"
        )
    return tree


def parse_yaml(text: str) -> Any:
    """Parses YAML within limits on depth and size.

    Raises yaml.YAMLError for malformed text, also where PyYAML itself raises other errors, and for unbounded aliases.
    """
    try:
        found = _load(text)
    except RecursionError:
        raise yaml.YAMLError(_TOO_DEEP) from None
    _refuse_endless(found)
    return found


def _load(text: str) -> Any:
    """Parses by libyaml, in a tenth of the time, where that is safe; texts that it refuses are parsed by PyYAML, for
    its message.

    libyaml's stack has no limit, and the two differ in tags, question marks and heads of block scalars; their agreement
    on tabs, control characters and Unicode is untested.
    """
    if FAST is not None and _PLAIN.fullmatch(text) and len(_NESTING.findall(text)) < _FEW:
        try:
            return yaml.load(text, FAST)  # noqa: S506  # a SafeLoader
        except (yaml.YAMLError, RecursionError):
            pass
    return yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader


def _refuse_endless(tree: Any) -> None:
    """Raises YAMLError for a value within itself, for aliases of aliases, and for unpaired surrogates."""
    left, seen = [(tree, 0)], 0
    while left:
        node, depth = left.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST:
            raise yaml.YAMLError(_TOO_DEEP if depth > _DEEPEST else f"it has more than {_MOST} values")
        if isinstance(node, str):
            seen += len(node) // _A_VALUE
            _refuse_surrogates(node)
        elif isinstance(node, dict):
            left += [(part, depth + 1) for pair in node.items() for part in pair]
        elif isinstance(node, list | tuple | set):
            left += [(part, depth + 1) for part in node]


def _refuse_surrogates(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise yaml.YAMLError(f"{text[:40]!a} is no text that UTF-8 can hold") from None


def _near(path: Path) -> str:
    """A file with a similar name, or the place of the examples."""
    folder = path.parent
    names = [each.name for each in folder.glob("*.y*ml")] if folder.is_dir() else []
    if found := difflib.get_close_matches(path.name, names, n=1):
        return f"there is {folder / found[0]}"
    examples = Path(__file__).parents[2] / "experiments"
    return f"examples are in {examples}; `colonnade up` without a file runs a demo"


def _sources(key: Any, value: Any) -> list[Any]:
    """The mappings that a merge key names, those with lower precedence first."""
    found = list(reversed(value.value)) if isinstance(value, yaml.SequenceNode) else [value]
    for source in found:
        if not isinstance(source, yaml.MappingNode):
            said = f"'<<' merges keys and values, and {source.id} is none"
            raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
    return found


class _Unclear(yaml.constructor.ConstructorError):
    """YAML that has a meaning, which is hardly the one that was meant: an override of it is no text either."""


class _Checks(yaml.constructor.SafeConstructor):
    """Refuses duplicate keys, malformed scalars and bombs.

    Merge keys are bounded while they are resolved, aliases afterwards (`_refuse_endless`).
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)  # type: ignore[call-arg]  # of the loader, whose base this is
        self._flat: set[Any] = set()  # mappings whose merge keys are resolved
        self._merged = 0  # pairs

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            kind = node.tag.rpartition(":")[2]  # a date has the form of one, and is none
            said = f"{str(node.value)[:40]!r} is no {kind}"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark) from None

    def flatten_mapping(self, node: Any) -> None:
        """Resolves merge keys, each mapping once. PyYAML keeps a copy of each pair per merge."""
        if node in self._flat:
            return
        self._flat.add(node)
        merged: list[Any] = []
        for source in [source for key, value in node.value if key.tag == _MERGE for source in _sources(key, value)]:
            self.flatten_mapping(source)
            self._merged += len(source.value)
            if self._merged > _MOST:
                raise yaml.constructor.ConstructorError(
                    None, None, f"it merges more than {_MOST} values", node.start_mark
                )
            merged += source.value
        pairs = [*merged, *(pair for pair in node.value if pair[0].tag != _MERGE)]
        last = {(key.tag, key.value) if isinstance(key, yaml.ScalarNode) else key: (key, value) for key, value in pairs}
        node.value = list(last.values())
        for key, _ in node.value:
            if key.tag == _VALUE:
                key.tag = "tag:yaml.org,2002:str"

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            return super().construct_mapping(node, deep)  # which refuses it
        if node not in self._flat:  # its own keys alone: it may have others in common with what it merges
            seen = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
                if key.value in seen:
                    said = f"the key {key.value!r} is given twice"
                    raise _Unclear(None, None, said, key.start_mark)
                seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(made) < len(node.value):  # of keys that are written differently, such as 1 and 0x1, or 1 and true
            seen.clear()
            for key, _ in node.value:
                if (value := self.construct_object(key, deep=True)) in seen:
                    said = f"the key {value!r} is given twice, once as {key.value}"
                    raise _Unclear(None, None, said, key.start_mark)
                seen.add(value)
        return made

    def construct_yaml_int(self, node: Any) -> int:
        if len(node.value) > _DIGITS:
            said = f"a whole number of {len(node.value)} characters is too large"
            raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)
        self._refuse_notation(node)
        return int(super().construct_yaml_int(node))

    def construct_yaml_float(self, node: Any) -> float:
        if ":" in node.value:
            self._refuse_notation(node)
        return float(super().construct_yaml_float(node))

    def _refuse_notation(self, node: Any) -> None:
        if _OTHER_BASE.match(node.value):
            said = f"YAML reads {node.value[:40]} in another base than ten: write it in decimal, or in quotes"
            raise _Unclear(None, None, said, node.start_mark)


for _kind in ("int", "float"):
    _Checks.add_constructor(f"tag:yaml.org,2002:{_kind}", getattr(_Checks, f"construct_yaml_{_kind}"))


class _Loader(_Checks, yaml.SafeLoader):
    """PyYAML's own scanner and parser."""


def _of_libyaml() -> Any:
    if not hasattr(yaml, "CSafeLoader"):  # PyYAML was built without it
        return None
    return type("_FastLoader", (_Checks, yaml.CSafeLoader), {})


FAST = _of_libyaml()
_PLAIN = re.compile(r"(?:(?![!>?|])[\n -~])*")
_NESTING, _FEW = re.compile(r"[\[{:-]"), 3000  # every level of nesting has one of these

_NAMED = ("protocol", "optimiser", "head_optimiser", "model", "head")  # sections that may be written as a name alone


def override(tree: dict[str, Any], setting: str) -> None:
    """Sets KEY=VALUE with a dotted key; `protocol: NAME` gets keys beside its name. Raises ConfigError."""
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {setting}: expected KEY=VALUE", hint="for example --set federation.protocol.rho=1")
    *folders, leaf = key.split(".")
    if len(folders) >= _DEEPEST:
        raise ConfigError(f"--set {key[:80]}..: {len(folders) + 1} keys, one below the other", hint="give fewer dots")
    try:
        _refuse_surrogates(setting)
    except yaml.YAMLError as unfit:
        raise ConfigError(f"--set {key}: {unfit}") from None
    try:
        parsed = parse_yaml(value)
    except _Unclear as unclear:
        raise ConfigError(f"--set {key}: {unclear.problem}") from None
    except yaml.YAMLError:
        parsed = value
    node = tree
    for depth, folder in enumerate(folders, 1):
        if node.get(folder) in (None, "none"):
            node[folder] = {}
        node[folder] = _in_full(folder, node[folder])
        node = node[folder]
        if not isinstance(node, dict):
            hint = "write it as keys and values in the file, or set it as a whole"
            raise ConfigError(f"--set {setting}: {'.'.join(folders[:depth])} has no keys, it is {node!r}", hint=hint)
    node[leaf] = parsed


def _in_full(section: str, value: Any) -> Any:
    """`mlp` as `{name: mlp}`, where a section may be a name alone."""
    if section in _NAMED and isinstance(value, str):
        return {"file" if ".py:" in value else "name": value}
    return value


def share_template(tree: dict[str, Any]) -> dict[str, Any]:
    """Merges `every_party` under the section of every party in the roster. Raises ConfigError, also for a section of a
    party outside the roster: a misspelt name in an override would otherwise add a party without data.
    """
    federation, own = tree.get("federation"), tree.get("parties") or {}
    roster: dict[str, str] = {}
    if isinstance(federation, dict) and "parties" in federation and isinstance(own, dict):
        roster = read_roster(federation["parties"])
    for name in own if roster else ():
        if name not in roster:
            names = [*map(str, roster)]
            said = f"parties.{name}: not in the roster federation.parties{nearest(str(name), names)}"
            raise ConfigError(said, hint=f"there are {', '.join(names)}")
    if TEMPLATE not in tree:
        return tree
    rest = {key: value for key, value in tree.items() if key != TEMPLATE}
    template = {} if tree[TEMPLATE] is None else tree[TEMPLATE]
    if not isinstance(template, dict):
        raise ConfigError(f"{TEMPLATE}{shown(template)}: expected keys and values")
    if not roster:
        return rest  # refused later
    return {**rest, "parties": {name: _merge(template, own.get(name) or {}) for name in roster}}


_CHOICES = ("name", "file", "source", "kind")  # discriminator keys of a section
_DATA = "data"


def _merge(under: Any, over: Any, section: str = "") -> Any:
    """Merges keys over keys. A section of another kind than the template's inherits nothing.

    `data` is the exception: a template without a source applies to every source, and `data` of another source inherits
    the keys that both sources have, since keys mean the same for all sources.
    """
    under, over = _in_full(section, under), _in_full(section, over)
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    if section == _DATA:
        under, over = _with_key(under), _with_key(over)
        under = _shared(under, over.get("source", under.get("source")))
    elif any(over[key] != under.get(key) for key in _CHOICES if key in over):
        return over
    return {**under, **{key: _merge(under.get(key), value, key) for key, value in over.items()}}


def _shared(under: dict[str, Any], source: Any) -> dict[str, Any]:
    """A template's `data` without keys that belong only to its own source. Unknown keys stay, and are refused later."""
    models = {get_args(model.model_fields["source"].annotation)[0]: model for model in DATA_MODELS}
    named = [name for name in (source, under.get("source")) if isinstance(name, str)]
    models |= {name: config_class(name, "Data") for name in named if name in SOURCES.entries}
    fields = {word: model.model_fields for word, model in models.items()}
    if not isinstance(source, str) or source not in fields:
        return under
    other = under.get("source")
    own = fields.get(other, {}) if isinstance(other, str) else {}
    return {key: value for key, value in under.items() if key in fields[source] or key not in own}


def _with_key(data: dict[str, Any]) -> dict[str, Any]:
    """Renames `id`, allowed for csv, to the common `key`."""
    return data if "key" in data else {"key" if key == "id" else key: value for key, value in data.items()}
