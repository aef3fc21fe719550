"""Writes fingerprints into a configuration's text. Only the roster changes; comments and order stay.

A parser finds the places, the text is changed there, and the result is parsed again and compared.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from colonnade.common.config.roster import read_roster
from colonnade.common.crypto.pki.names import SERVER
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.yaml_tree import parse_yaml, read_tree

_PLACEHOLDER = re.compile(r"(sha256:)?(\.\.+|…)?")  # as in pages and templates
_REMEDY = "write the fingerprints in by hand: colonnade certs show FILE prints them"


@dataclass
class RosterText:
    """Text of a YAML file with a `federation` section, with the places of its fingerprints."""

    path: Path
    text: str = field(init=False)
    tree: dict[str, Any] = field(init=False)
    roster: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.tree = read_tree(self.path)
        self.text = self.path.read_bytes().decode("utf-8")
        federation = self.tree.get("federation")
        if not isinstance(federation, dict) or "parties" not in federation:
            raise ConfigError(
                f"{self.path}: there is no federation.parties",
                hint="add the section `federation` with `parties`, a list of their names",
            )
        server = federation.get("server")
        self.roster = {SERVER: "" if server is None else server, **read_roster(federation["parties"])}

    @property
    def name(self) -> str:
        """The federation's id, or "" if it has none yet."""
        return str(self.tree["federation"].get("id") or "")

    def pin(self, name: str) -> str:
        """A member's fingerprint; "" if it is missing or a placeholder of dots."""
        found = str(self.roster[name])
        return "" if _PLACEHOLDER.fullmatch(found) else found

    def pinned(self, pins: Mapping[str, str]) -> str:
        """Returns the text with these fingerprints; refuses a layout that would need further changes."""
        # Change from the end, so that earlier positions stay valid.
        changed = self.text
        for begin, end, new in sorted(self._changes(pins), reverse=True):
            changed = changed[:begin] + new + changed[end:]
        wanted = copy.deepcopy(self.tree)
        if SERVER in pins:
            wanted["federation"]["server"] = pins[SERVER]
        parties = {name: pin for name, pin in pins.items() if name != SERVER}
        if parties:
            wanted["federation"]["parties"] = _roster(wanted["federation"]["parties"]) | parties
        if _parsed(changed, like=wanted) != wanted:
            raise ConfigError(f"{self.path}: the roster cannot be changed in place", hint=_REMEDY)
        return changed

    def _changes(self, pins: Mapping[str, str]) -> list[tuple[int, int, str]]:
        """Replacements as begin, end, and new text."""
        document = yaml.compose(self.text, yaml.SafeLoader)
        section = _value(document, "federation")
        key, parties = _entry(section, "parties")
        if key is None or parties is None:
            raise ConfigError(f"{self.path}: federation.parties is not written in its section", hint=_REMEDY)
        found: list[tuple[int, int, str]] = []
        if SERVER in pins:
            found += self._server(section, key, pins[SERVER])
        named = {name: pin for name, pin in pins.items() if name != SERVER}
        if isinstance(parties, yaml.MappingNode):
            for name, pin in named.items():
                found += self._member(parties, name, pin)
        elif named and isinstance(parties, yaml.SequenceNode) and not self._on_one_line(parties):
            found += self._list(key, parties, named)
        elif named:
            found.append((*_span(parties), self._mapping(parties, named)))
        return found

    def _server(self, section: Any, parties: yaml.Node, pin: str) -> list[tuple[int, int, str]]:
        if _entry(section, SERVER)[0] is not None:
            return self._member(section, SERVER, pin)
        place, column = parties.start_mark.index, parties.start_mark.column
        line = ", " if section.flow_style else f"{self._newline}{' ' * column}"
        return [(place, place, f'{SERVER}: "{pin}"{line}')]

    def _member(self, mapping: Any, name: str, pin: str) -> list[tuple[int, int, str]]:
        key, value = _entry(mapping, name)
        if key is None or value is None:
            return []  # a merged mapping; the final comparison refuses it
        begin, end = _span(value)
        if begin < end:
            return [(begin, end, f'"{pin}"')]
        after = key.end_mark.index
        colon = re.match(r"\s*:", self.text[after:]) if ":" in self.text[after : max(end, after + 1)] else None
        place = after + colon.end() if colon else after
        return [(place, place, f' "{pin}"' if colon else f': "{pin}"')]

    def _list(self, key: yaml.Node, names: yaml.SequenceNode, pins: Mapping[str, str]) -> list[tuple[int, int, str]]:
        """Turns a list of names into a mapping at the same places."""
        begin, end = _span(names)
        found = []
        if names.flow_style:
            found += [(begin, begin + 1, "{"), (end - 1, end, "}")]
        # A list may be indented like its key; a mapping there would belong to the section.
        inner = "" if names.start_mark.column > key.start_mark.column else "  "
        for item in names.value:
            start, stop = _span(item)
            new = f'{self.text[start:stop]}: "{pins.get(item.value, "")}"'
            dash = start if names.flow_style else self.text.rindex("-", 0, start)
            found.append((dash, stop, new if names.flow_style else f"{inner}{new}"))
        return found

    def _on_one_line(self, node: yaml.Node) -> bool:
        return "\n" not in self.text[slice(*_span(node))] and bool(getattr(node, "flow_style", False))

    def _mapping(self, node: yaml.Node, pins: Mapping[str, str]) -> str:
        """Expands a number of parties, or a list in one line, to one line per party."""
        names = read_roster(self.tree["federation"]["parties"])
        line = f",{self._newline}{' ' * (node.start_mark.column + 1)}"
        return "{" + line.join(f'{name}: "{pins.get(name, "")}"' for name in names) + "}"

    @property
    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"


def _roster(value: Any) -> dict[str, Any]:
    """The roster as a mapping, with all names expanded."""
    return dict(value) if isinstance(value, dict) else read_roster(value)


def _parsed(text: str, like: Mapping[str, Any]) -> Any:
    try:
        tree = parse_yaml(text)
        found = list(tree["federation"]["parties"])
    except (yaml.YAMLError, KeyError, TypeError):
        return None
    same_order = found == list(_roster(like["federation"]["parties"]))
    return tree if same_order else None


def _entry(mapping: Any, name: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    if isinstance(mapping, yaml.MappingNode):
        for key, value in mapping.value:
            if isinstance(key, yaml.ScalarNode) and key.value == name:
                return key, value
    return None, None


def _value(mapping: Any, name: str) -> Any:
    return _entry(mapping, name)[1]


def _span(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index
