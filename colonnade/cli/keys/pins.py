"""`colonnade certs pin`: writes fingerprints of members' certificates into the roster of a configuration's text.

Only the roster changes; comments and order stay. A parser finds the places, the text is changed there, and the result
is parsed again and compared.
"""

from __future__ import annotations

import copy
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from colonnade.common.config.federation import read_roster
from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.certificates import (
    Certificate,
    check_validity,
    describe,
    fingerprint,
    is_authority,
    name_of,
    read_certificate,
)
from colonnade.common.crypto.pki.identity import signed_by
from colonnade.common.crypto.pki.names import SERVER
from colonnade.common.errors import ConfigError, IdentityError, InputError, nearest
from colonnade.common.parsing.yaml_tree import parse_yaml, read_tree
from colonnade.common.run.files import write_kept
from colonnade.reports.console.screen import out as console

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
        section = _entry(document, "federation")[1]
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


def _span(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index


_EXAMPLE = "for example server=server/cert.pem bank=bank.pem"


def pin(path: Path, named: Sequence[str], authority: Path | None, *, replace: bool) -> None:
    """Checks certificates against a file's roster and their authority, and writes and prints their fingerprints.

    Args:
        path: YAML with a `federation` section.
        named: NAME=FILE, a member of the roster and its certificate.
        authority: certificate that must have signed them; None for the `ca.pem` beside them.
        replace: whether other fingerprints may be replaced.
    """
    roster = RosterText(path)
    paths = _paths(named)
    for name in paths:
        if name not in roster.roster:
            raise IdentityError(
                f"{path}: no member {name!r} is in the roster{nearest(name, roster.roster)}",
                hint=f"add it to federation.parties, or give one of {', '.join(roster.roster)}",
            )
    certificates = {name: _read(name, file) for name, file in paths.items()}
    issuer = _authority(authority, list(paths.values()))
    for name, certificate in certificates.items():
        if not signed_by(certificate, issuer):
            raise IdentityError(
                f"{paths[name]} is not signed by the authority {describe(issuer).subject}",
                hint="all members need certificates of one authority; --ca FILE names its certificate",
            )
    pins = {name: fingerprint(certificate) for name, certificate in certificates.items()}
    _refuse_replaced(roster, pins, replace=replace)
    _write(roster, pins, issuer)


def _write(roster: RosterText, pins: Mapping[str, str], authority: Certificate) -> None:
    """Prints every fingerprint, and writes the new ones; the file keeps its permissions."""
    path = roster.path.resolve()
    new = {name: pin for name, pin in pins.items() if roster.pin(name) != pin}
    text = roster.pinned(new)
    console.say(f"{roster.path}: the roster of {roster.name!r}")
    width = max(map(len, pins))
    for name, pin in pins.items():
        before = roster.pin(name)
        state = "as before" if before == pin else f"before: {before}" if before else "new"
        console.say(f"  {name:{width}}  {pin}  {state}")
    shown = describe(authority)
    console.say(f"Signed by {shown.subject}, {shown.fingerprint}.")
    if new:
        mode = stat.S_IMODE(path.stat().st_mode)
        write_kept(path, text.encode("utf-8"))
        path.chmod(mode)
        console.say(f"Wrote into {roster.path}: {', '.join(new)}.")
    else:
        console.say(f"Nothing to write: {roster.path} has all of them.")
    _say_next(roster, pins)


def _say_next(roster: RosterText, pins: Mapping[str, str]) -> None:
    names = [name for name in roster.roster if name not in pins and not roster.pin(name)]
    if names:
        console.say(f"Still without a fingerprint: {', '.join(names)}.")
    console.say("Next, by telephone: each member reads out what `colonnade certs show cert.pem` prints at its own")
    console.say("  machine. Compare all digits: a file that came by mail can be somebody else's.")
    parties = [name for name in roster.roster if name != SERVER]
    console.say(f"The federation section must be the same in the files of {', '.join((SERVER, *parties))}.")


def _paths(named: Sequence[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for word in named:
        name, equals, file = word.partition("=")
        if not (name and equals and file):
            raise InputError(f"{word!r}: expected NAME=FILE", hint=_EXAMPLE)
        if name in found:
            raise InputError(f"{name!r} is given twice", hint="give one certificate for each member")
        found[name] = Path(file)
    return found


def _read(name: str, path: Path) -> Certificate:
    """Reads a member's certificate, which must be valid now."""
    pem = files.read(path, hint=f"give the certificate that was signed for {name}: colonnade certs sign")
    if b"PRIVATE KEY-----" in pem:
        raise IdentityError(
            f"{path} is a private key, not a certificate",
            hint=f"give cert.pem; if {path.name} was sent to anyone, make a new key and certificate",
        )
    if b"CERTIFICATE REQUEST-----" in pem:
        raise IdentityError(
            f"{path} is a request, not a certificate", hint="have it signed first: colonnade certs sign"
        )
    certificate = read_certificate(pem, str(path))
    if is_authority(certificate):
        raise IdentityError(f"{path} is an authority's certificate, not that of {name!r}", hint=f"give {name}'s own")
    if (found := name_of(certificate)) != name:
        raise IdentityError(
            f"{path} is the certificate of {found!r}, not of {name!r}", hint="check which file belongs to which member"
        )
    renew = f"have it renewed: colonnade certs renew DIR at {name}, then colonnade certs sign"
    check_validity(certificate, f"the certificate of {name!r} ({path})", hint=renew)
    return certificate


def _authority(given: Path | None, certificates: Sequence[Path]) -> Certificate:
    beside = [path.parent / "ca.pem" for path in certificates]
    paths = [given] if given is not None else [path for path in dict.fromkeys(beside) if path.exists()]
    if not paths:
        raise IdentityError(
            "no certificate of an authority is beside the members' certificates",
            hint="name it: --ca ca/cert.pem",
        )
    hint = "name the authority's cert.pem"
    read = {path: read_certificate(files.read(path, own=True, hint=hint), str(path)) for path in paths}
    if len({fingerprint(certificate) for certificate in read.values()}) > 1:
        raise IdentityError(
            f"{' and '.join(map(str, paths))} are certificates of different authorities",
            hint="ask for the right one by telephone, and name it: --ca FILE",
        )
    path, certificate = next(iter(read.items()))
    if not is_authority(certificate):
        raise IdentityError(
            f"{path} is {describe(certificate).subject}'s certificate, no authority's",
            hint="give cert.pem of the folder that `colonnade certs ca DIR` made",
        )
    check_validity(certificate, f"the authority {path}", hint="make a new one: colonnade certs ca DIR")
    return certificate


def _refuse_replaced(roster: RosterText, pins: Mapping[str, str], *, replace: bool) -> None:
    others = [name for name, pin in pins.items() if roster.pin(name) not in ("", pin)]
    if others and not replace:
        lines = "; ".join(f"{name}: {roster.pin(name)}, and the certificate is {pins[name]}" for name in others)
        raise IdentityError(
            f"{roster.path} pins another certificate already: {lines}",
            hint="ask by telephone whether the certificate was renewed; if it was, add --replace",
        )
