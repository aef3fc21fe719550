"""Configurations as the content of a file that reads back as the same configuration."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, get_origin, runtime_checkable

import yaml
from pydantic import BaseModel

from colonnade.common.crypto.pki.names import SERVER
from colonnade.common.run.run_folder import RunFolder

_PATHS = ("path", "folder", "identity", "revoked", "file")  # keys whose values are paths
_QUOTED = re.compile(r"""(['"])([^'"*?\[\n]+\.\w+)\1""")  # in a query: a file's name
_CODE = re.compile(r"(.+\.py)(:\w+)")
KIND_KEYS = ("source", "kind", "mechanism", "name")  # keys that decide the other keys of their section


@runtime_checkable
class WithExclusions(Protocol):
    """A section in which some keys exclude others, even with their defaults."""

    @property
    def left_out(self) -> frozenset[str]:
        """Keys that a file must not have, given the section's other values."""
        ...


def config_tree(config: BaseModel) -> dict[str, Any]:
    """Keys and values of a checked configuration or section, as JSON and YAML have them.

    Defaults are included, so that a run continues with them under a version with other defaults. Null is left out
    unless it replaces another default or is a key of a user's own code.
    """
    tree: dict[str, Any] = _taken(config, config.model_dump(mode="json"), _counts)
    return tree


def set_tree(section: BaseModel) -> dict[str, Any]:
    """The keys of a section that were set, and the kind of every section among them."""
    tree: dict[str, Any] = _taken(section, section.model_dump(mode="json"), _was_set)
    return tree


def _was_set(section: BaseModel, key: str, _value: Any) -> bool:
    fields = type(section).model_fields
    kind = key in KIND_KEYS and key in fields and get_origin(fields[key].annotation) is Literal
    return kind or key in section.model_fields_set


def _counts(section: BaseModel, key: str, value: Any) -> bool:
    fields = type(section).model_fields
    skipped = isinstance(section, WithExclusions) and key in section.left_out
    return not skipped and (value is not None or key not in fields or fields[key].default is not None)


def _taken(value: Any, dumped: Any, wanted: Callable[[BaseModel, str, Any], bool]) -> Any:
    """What is dumped of a value, of each section in it the wanted keys."""
    if isinstance(value, BaseModel) and isinstance(dumped, dict):
        kept = {key: below for key, below in dumped.items() if wanted(value, key, below)}
        return {key: _taken(getattr(value, key, None), below, wanted) for key, below in kept.items()}
    if isinstance(value, Mapping) and isinstance(dumped, dict):
        return {key: _taken(value.get(key), below, wanted) for key, below in dumped.items()}
    if isinstance(value, list | tuple) and isinstance(dumped, list):
        return [_taken(one, below, wanted) for one, below in zip(value, dumped, strict=True)]
    return dumped


_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's, where PyYAML has it, takes a quarter of the time


def yaml_text(tree: Mapping[str, Any], **layout: Any) -> str:
    """The text that `yaml.safe_dump` gives, keys in the order of the tree; `layout` are its keywords."""
    return str(yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, **layout))


def member_text(tree: Mapping[str, Any], member: str) -> str:
    """YAML of the federation's section and one member's own."""
    return yaml_text({"federation": tree["federation"]}) + _own_text(tree, member)


def config_files(tree: Mapping[str, Any], folder: RunFolder) -> dict[Path, str]:
    """The files by their place in a run's folder, from a dumped configuration."""
    agreed = yaml_text({"federation": tree["federation"]})  # once: it names all parties
    files = {folder.config: yaml_text(tree), folder.server_config: agreed + _own_text(tree, SERVER)}
    for name in tree["federation"]["parties"]:
        files[folder.party(name).config] = agreed + _own_text(tree, name)
    return files


def _own_text(tree: Mapping[str, Any], member: str) -> str:
    return yaml_text({SERVER: tree[SERVER]} if member == SERVER else {"parties": {member: tree["parties"][member]}})


def relocated(tree: Mapping[str, Any], base: Path, folder: Path | None = None) -> dict[str, Any]:
    """Copies a configuration, with paths that exist beside it made relative to another folder.

    Names of known sets and paths that are found elsewhere stay.

    Args:
        base: folder that its paths are relative to.
        folder: the other folder; None for absolute paths.
    """
    made = copy.deepcopy(dict(tree))
    to = None if folder is None else folder.resolve()
    _replace_paths(made, lambda path: _moved(path, base, to) if _is_beside(path, base) else path)
    return made


def files_beside(tree: Mapping[str, Any], base: Path) -> list[str]:
    """The relative paths in a configuration that exist in the folder that they are relative to, sorted."""
    found = set[str]()

    def note(path: str) -> str:
        if _is_beside(path, base):
            found.add(path)
        return path

    _replace_paths(copy.deepcopy(dict(tree)), note)
    return sorted(found)


def _replace_paths(node: Any, replace: Callable[[str], str]) -> None:
    if isinstance(node, list):
        for each in node:
            _replace_paths(each, replace)
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        if not isinstance(value, str):
            _replace_paths(value, replace)
        elif code := _CODE.fullmatch(value):
            node[key] = replace(code[1]) + code[2]
        elif key in _PATHS:
            node[key] = replace(value)
        elif key == "url" and value.startswith("sqlite:///"):
            node[key] = "sqlite:///" + replace(value.removeprefix("sqlite:///"))
        elif key == "query":
            node[key] = _QUOTED.sub(lambda match: match[1] + replace(match[2]) + match[1], value)


def _is_beside(path: str, base: Path) -> bool:
    own = Path(path).expanduser()
    return not own.is_absolute() and (base / own).exists()


def _moved(path: str, base: Path, folder: Path | None) -> str:
    found = (base / path).resolve()
    if folder is None:
        return str(found)
    moved = os.path.relpath(found, folder)
    return moved if moved.startswith(".") else f"./{moved}"
