"""card.yaml: facts about a model that only people know, kept with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from colonnade.common.errors import InputError, nearest
from colonnade.common.parsing.yaml_tree import parse_yaml

_HINT = "mend the line; the file without it is written again as a template"


@dataclass(frozen=True)
class CardPlace:
    """A place of the card that people fill: its section and key in the file, its title in the card, and a question."""

    section: str
    key: str
    title: str
    question: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.key}"


PLACES = (
    CardPlace("model_details", "provider", "provider and contact", "Who provides it, and whom does one write to?"),
    CardPlace("model_details", "version", "version", "Which version is this, and what has changed since the last?"),
    CardPlace("model_details", "licence", "licence", "Under which licence or agreement may it be used?"),
    CardPlace("intended_use", "purpose", "purpose", "What is it for: which decision, about whom, how often?"),
    CardPlace("intended_use", "users", "users", "Who works with its predictions, and what must they know?"),
    CardPlace("intended_use", "out_of_scope", "not for", "For what must it not be used?"),
    CardPlace("factors", "groups", "groups of people", "For which groups could it do worse, and were they compared?"),
    CardPlace("factors", "conditions", "conditions", "Which instruments, markets or seasons change how well it does?"),
    CardPlace("metrics", "reasons", "why these metrics", "Why are they and the threshold right for the purpose?"),
    CardPlace("data", "period", "period of the data", "From when to when do the rows date?"),
    CardPlace("data", "collection", "collection", "Where do the rows come from, how were they chosen and labelled?"),
    CardPlace("data", "representative", "representative", "Of whom are they representative, and who is missing?"),
    CardPlace("ethics", "sensitive", "sensitive data", "Which columns are protected traits, or stand for them?"),
    CardPlace("ethics", "lawful", "lawful basis", "On which basis may each party use its columns for this?"),
    CardPlace("ethics", "harms", "risks and harms", "Whom could a wrong prediction hurt, and what is done about it?"),
    CardPlace("ethics", "oversight", "human oversight", "Who can overrule a prediction, and how do they know when to?"),
    CardPlace("caveats", "recommendations", "recommendations", "What should a user do, and what was not tested?"),
    CardPlace("technical", "interfaces", "interfaces", "With which systems does it work, and how is it delivered?"),
    CardPlace("technical", "instructions", "instructions for use", "Where are those for people who deploy it?"),
    CardPlace("technical", "security", "cybersecurity", "Which measures protect the members' machines and keys?"),
    CardPlace("technical", "changes", "planned changes", "Which changes are foreseen, and when is it trained again?"),
    CardPlace("technical", "risk_management", "risk management", "Where is the risk management system described?"),
    CardPlace("technical", "standards", "standards", "Which standards were applied?"),
    CardPlace("technical", "declaration", "declaration of conformity", "Where is the declaration, if one is needed?"),
    CardPlace("technical", "monitoring", "monitoring", "How is it watched in use, and who acts on what is found?"),
)  # fmt: skip

Answers = Mapping[str, str]
"""Texts by path of a place, of those that are filled."""


def template() -> str:
    lines = [
        "# What a model card says that a run cannot know. Write an answer after a key: `colonnade card` reads this",
        "# file and never changes it. Places left empty are marked in the card.",
    ]
    for at, place in enumerate(PLACES):
        if at == 0 or place.section != PLACES[at - 1].section:
            lines += ["", f"{place.section}:"]
        lines += [f"  # {place.question}", f"  {place.key}:"]
    return "\n".join(lines) + "\n"


def answers_of(path: Path) -> Answers:
    """Reads the file; without one there are no answers.

    Raises InputError if a key is unknown or a value no text, with the line.
    """
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        parse_yaml(text)  # within its limits on depth and size, and without a key twice
        tree = yaml.compose(text, yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as unreadable:
        raise InputError(f"{path} cannot be read: {unreadable}", hint=_HINT) from None
    except yaml.YAMLError as malformed:
        raise InputError(f"{path} is not YAML: {' '.join(str(malformed).split())}", hint=_HINT) from None
    found: dict[str, str] = {}
    sections = dict.fromkeys(place.section for place in PLACES)
    for section, inside in _pairs(path, tree, sections, ""):
        keys = [place.key for place in PLACES if place.section == section]
        for key, value in _pairs(path, inside, keys, f"{section}."):
            if said := _text(path, value, f"{section}.{key}"):
                found[f"{section}.{key}"] = said
    return found


def _pairs(path: Path, node: Any, known: Iterable[str], within: str) -> list[tuple[str, Any]]:
    if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ("", "~", "null")):
        return []
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{_at(path, node)}: {within or 'the file '}holds no keys and values", hint=_HINT)
    for key, _ in node.value:
        if key.value not in known:
            name, names = f"{key.value!s:.80}", list(known)
            raise InputError(
                f"{_at(path, key)}: {within}{name} is no place of a model card{nearest(name, names)}",
                hint=f"there are {', '.join(names)}",
            )
    return [(str(key.value), value) for key, value in node.value]


def _text(path: Path, node: Any, key: str) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "; ".join(filter(None, (_text(path, each, key) for each in node.value)))
    if not isinstance(node, yaml.ScalarNode):
        raise InputError(f"{_at(path, node)}: {key}: expected a text, or a list of texts", hint=_HINT)
    return "" if node.tag.endswith(":null") else " ".join(str(node.value).split())


def _at(path: Path, node: Any) -> str:
    return f"{path}, line {node.start_mark.line + 1}"
